//! Requests under idempotency keys: one effect, one answer, for a week.

use crate::cell_world;

use bursar_core::cell::Cell;
use bursar_core::cell::command::{Command, Origin, Refusal, Reply, RequestKey, StoredAnswer};
use bursar_core::machine::Machine;
use cell_world::*;

fn under(key: u128, fingerprint: u128) -> Origin {
    Origin::Shell { actor: "operator".into(), request: Some(RequestKey { key, fingerprint }) }
}

fn drain() -> Command {
    Command::DrainNode { node: "n0".into(), force: false }
}

fn resume() -> Command {
    Command::ResumeNode { node: "n0".into() }
}

fn is_drained(world: &World) -> bool {
    world.cell.node_named("n0").expect("registered").drained
}

#[test]
fn a_request_is_carried_out_once_and_another_under_its_key_is_refused() {
    let mut world = World::with_nodes(1, "H100");
    assert_eq!(world.send_from(under(1, 7), drain()), Ok(Reply::Done));
    assert_eq!(world.send_from(under(2, 8), resume()), Ok(Reply::Done));
    let records = world.journal.len();
    assert_eq!(world.send_from(under(1, 7), drain()), Ok(Reply::Repeated));
    assert_eq!(world.send_from(under(1, 9), drain()), Err(Refusal::KeyReused));
    assert_eq!(world.journal.len(), records, "nothing is recorded");
    assert!(!is_drained(&world));
    let unknown = Command::DrainNode { node: "n9".into(), force: false };
    assert_eq!(world.send_from(under(3, 9), unknown), Err(Refusal::UnknownNode));
    assert_eq!(world.cell.done_request(3), None, "a refused request may be tried again");
    world.check_replay();
}

#[test]
fn the_first_stored_answer_is_not_replaced() {
    let mut world = World::with_nodes(1, "H100");
    world.send_from(under(1, 7), drain()).expect("fine");
    let answer = |world: &World| {
        world.cell.done_request(1).expect("known").answer.as_ref().map(|kept| kept.code)
    };
    assert_eq!(answer(&world), None, "the effect is recorded before the answer");
    for code in [200, 201] {
        let keep = Command::KeepAnswer(StoredAnswer { code, body: Some("{}".into()), scope: None });
        assert_eq!(world.send_from(under(1, 7), keep), Ok(Reply::Done));
    }
    assert_eq!(answer(&world), Some(200));
    let keep = Command::KeepAnswer(StoredAnswer { code: 409, body: None, scope: Some("*".into()) });
    assert_eq!(world.send_from(under(1, 8), keep.clone()), Err(Refusal::KeyReused));
    assert_eq!(world.send_from(under(2, 8), keep), Ok(Reply::Done));
    assert_eq!(world.send_from(under(2, 8), drain()), Ok(Reply::Repeated));
    let twin = Cell::from_image(world.cell.image()).expect("an image of a cell");
    assert_eq!(twin.digest(), world.cell.digest());
    world.check_replay();
}

#[test]
fn requests_are_forgotten_after_a_week_and_not_before() {
    let mut world = World::with_nodes(1, "H100");
    world.send_from(under(1, 7), drain()).expect("fine");
    world.now += HOUR;
    world.send_from(under(2, 7), resume()).expect("fine");
    world.now += 7 * DAY - HOUR;
    assert_eq!(world.send_from(under(1, 7), drain()), Ok(Reply::Repeated));
    world.now += 1;
    assert_eq!(world.send_from(under(1, 7), drain()), Ok(Reply::Done));
    assert_eq!(world.send_from(under(2, 7), resume()), Ok(Reply::Repeated));
    world.now += HOUR;
    assert_eq!(world.send_from(under(2, 7), resume()), Ok(Reply::Done));
    world.now += 8 * DAY;
    world.settle();
    assert_eq!((world.cell.done_request(1), world.cell.done_request(2)), (None, None));
    world.check_replay();
}

use super::*;

#[test]
fn pauses_grow_and_differ() {
    let (first, longest) = PAUSES;
    for failures in [1, 2, 5, 40, u32::MAX] {
        for random in [0, 7, u64::MAX] {
            let pause = pause(failures, random);
            assert!(pause >= first / 2 && pause <= longest, "{failures} {pause:?}");
        }
    }
    assert!(pause(2, 0) > pause(1, 0));
    assert_ne!(pause(1, 0), pause(1, 50));
}

#[test]
fn only_the_offered_node_and_a_valid_store_are_accepted() {
    let answer = |node: &str, store: Option<&str>| Registration {
        node: node.into(),
        incarnation: 1,
        heartbeat_seconds: 30,
        lease_seconds: 90,
        lease_until: bursar_api::Time::from_millis(0),
        store: store.map(Into::into),
    };
    // Ids of nodes may have colons.
    for (node, store) in [("n1", Some("0af3-1")), ("n1", None), ("rack:1.2", Some("s"))] {
        check_names(&answer(node, store), node).expect("plain");
    }
    for (node, store) in [
        ("n2", Some("s")),
        ("n1/../n2", Some("s")),
        ("n2", None),
        ("n1", Some("a/../b")),
        ("n1", Some("")),
    ] {
        assert!(check_names(&answer(node, store), "n1").is_err(), "{node} {store:?}");
    }
}

#[test]
fn a_hanging_heartbeat_is_repeated_within_the_lease() {
    for (heartbeat_seconds, lease_seconds) in [(30, 90), (1, 4), (60, 600), (10, 30)] {
        let registration = Registration {
            node: "n1".into(),
            incarnation: 1,
            heartbeat_seconds,
            lease_seconds,
            lease_until: bursar_api::Time::from_millis(0),
            store: None,
        };
        let wait = rhythm(&registration);
        assert!((1..=MAX_WAIT).contains(&wait));
        // One heartbeat is answered after its wait; the next one hangs.
        let noticed = Duration::from_secs(wait.into()) + answer_timeout(&registration, wait);
        let stop = Duration::from_secs(lease_seconds.into()) / 3 * 2;
        assert!(noticed < stop || lease_seconds < 6, "{lease_seconds}: {noticed:?} {stop:?}");
    }
}

#[tokio::test]
async fn pending_notifications_wake_the_agent_once() {
    use std::io::Write;
    let place = tempfile::tempdir().expect("a folder");
    let folder = StateFolder::open(place.path()).expect("it can be made");
    let receiver = pipe::OpenOptions::new().read_write(true).open_receiver(folder.wake());
    let receiver = receiver.expect("the pipe is there");
    let mut pipe = std::fs::OpenOptions::new().write(true).open(folder.wake()).expect("open");
    pipe.write_all(&[b'.'; 600]).expect("there is room");
    woken(&receiver).await.expect("readable");
    let again = tokio::time::timeout(Duration::ZERO, woken(&receiver)).await;
    assert!(again.is_err(), "all notifications were consumed");
}

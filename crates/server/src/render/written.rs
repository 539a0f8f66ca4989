//! Writes the most frequent bodies directly to bytes: the same bytes as their serialization, at a
//! fraction of its cost.

use std::io::Write;

use bursar_api::Time;
use bursar_api::amount::Sum;
use bursar_api::credits::charge::Charge;
use bursar_api::credits::hold::{Hold, HoldState, Lot, OnExpiry, ReturnedLot};

/// A JSON object under construction.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    begun: bool,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Object<'a> {
        out.push(b'{');
        Object { out, begun: false }
    }

    /// Begins a field; its value follows.
    fn field(&mut self, name: &str) -> &mut Vec<u8> {
        self.out.extend_from_slice(if self.begun { b",\"" } else { b"\"" });
        self.begun = true;
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    fn text(&mut self, name: &str, value: &str) {
        text(self.field(name), value);
    }

    /// A text of the server's own, which needs no escapes.
    fn name(&mut self, name: &str, value: &str) {
        self.quoted(name, |out| out.extend_from_slice(value.as_bytes()));
    }

    fn sum(&mut self, name: &str, value: Sum) {
        self.quoted(name, |out| value.write(out));
    }

    fn time(&mut self, name: &str, value: Time) {
        self.quoted(name, |out| value.write(out));
    }

    fn optional_time(&mut self, name: &str, value: Option<Time>) {
        if let Some(value) = value {
            self.time(name, value);
        }
    }

    fn quoted(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        let out = self.field(name);
        out.push(b'"');
        value(out);
        out.push(b'"');
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.field(name).extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn null(&mut self, name: &str) {
        self.field(name).extend_from_slice(b"null");
    }

    fn position(&mut self, position: Option<u64>) {
        if let Some(position) = position {
            // Writing to memory never fails.
            let _ = write!(self.field("position"), "{position}");
        }
    }

    fn end(self) {
        self.out.push(b'}');
    }
}

fn text(out: &mut Vec<u8>, value: &str) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if value.bytes().all(plain) {
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
    } else {
        serde_json::to_writer(out, value).expect("writing to memory never fails");
    }
}

fn list<T>(out: &mut Vec<u8>, items: &[T], each: impl Fn(Object<'_>, &T)) {
    out.push(b'[');
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        each(Object::begin(out), item);
    }
    out.push(b']');
}

fn lot(mut object: Object<'_>, lot: &Lot) {
    let Lot { grant, amount } = lot;
    object.text("grant", grant);
    object.sum("amount", *amount);
    object.end();
}

fn returned_lot(mut object: Object<'_>, lot: &ReturnedLot) {
    let ReturnedLot { grant, amount, expired } = lot;
    object.text("grant", grant);
    object.sum("amount", *amount);
    object.flag("expired", *expired);
    object.end();
}

/// Writes a hold.
pub(crate) fn hold(hold: &Hold, out: &mut Vec<u8>) {
    let Hold {
        id,
        account,
        state,
        amount,
        captured,
        remaining,
        uncollected,
        expires_at,
        lots,
        lots_truncated,
        context,
        on_expiry,
        reference,
        created_at,
        returned,
        returned_truncated,
        as_of,
        position,
    } = hold;
    let mut object = Object::begin(out);
    object.text("id", id);
    object.text("account", account);
    object.name(
        "state",
        match state {
            HoldState::Open => "open",
            HoldState::Settled => "settled",
            HoldState::Released => "released",
            HoldState::Lapsed => "lapsed",
        },
    );
    object.sum("amount", *amount);
    object.sum("captured", *captured);
    object.sum("remaining", *remaining);
    object.sum("uncollected", *uncollected);
    match expires_at {
        Some(expires_at) => object.time("expires_at", *expires_at),
        None => object.null("expires_at"),
    }
    list(object.field("lots"), lots, lot);
    object.flag("lots_truncated", *lots_truncated);
    if let Some(context) = context {
        serde_json::to_writer(object.field("context"), context)
            .expect("a context has only plain fields");
    }
    object.name(
        "on_expiry",
        match on_expiry {
            OnExpiry::HonorHold => "honor_hold",
            OnExpiry::Strict => "strict",
        },
    );
    match reference {
        Some(reference) => object.text("reference", reference),
        None => object.null("reference"),
    }
    object.time("created_at", *created_at);
    if let Some(returned) = returned {
        list(object.field("returned"), returned, returned_lot);
    }
    if *returned_truncated {
        object.flag("returned_truncated", true);
    }
    object.optional_time("as_of", *as_of);
    object.position(*position);
    object.end();
}

/// Writes a charge.
pub(crate) fn charge(charge: &Charge, out: &mut Vec<u8>) {
    let Charge {
        id,
        account,
        requested,
        charged,
        refunded,
        lots,
        lots_truncated,
        spendable_after,
        effective_at,
        created_at,
        as_of,
        position,
    } = charge;
    let mut object = Object::begin(out);
    object.text("id", id);
    object.text("account", account);
    object.sum("requested", *requested);
    object.sum("charged", *charged);
    if let Some(refunded) = refunded {
        object.sum("refunded", *refunded);
    }
    list(object.field("lots"), lots, lot);
    object.flag("lots_truncated", *lots_truncated);
    object.sum("spendable_after", *spendable_after);
    object.optional_time("effective_at", *effective_at);
    object.time("created_at", *created_at);
    object.optional_time("as_of", *as_of);
    object.position(*position);
    object.end();
}

#[cfg(test)]
mod tests {
    use bursar_api::credits::hold::Context;

    use super::*;

    fn sum(micros: i128) -> Sum {
        Sum::from_micros(micros)
    }

    fn same<T: serde::Serialize>(value: &T, write: impl Fn(&T, &mut Vec<u8>)) {
        let mut out = Vec::new();
        write(value, &mut out);
        let serialised = serde_json::to_string(value).expect("plain fields");
        assert_eq!(String::from_utf8(out).expect("text"), serialised);
    }

    fn lots() -> Vec<Lot> {
        ["g1", "g\"2"].map(|grant| Lot { grant: grant.into(), amount: sum(-1_500_000) }).into()
    }

    #[test]
    fn a_written_hold_is_the_serialised_hold() {
        let mut shown = Hold {
            id: "h1".into(),
            account: "acme:nlp".into(),
            state: HoldState::Open,
            amount: sum(28_800_000),
            captured: sum(0),
            remaining: sum(i128::MAX),
            uncollected: sum(1),
            expires_at: None,
            lots: Vec::new(),
            lots_truncated: false,
            context: None,
            on_expiry: OnExpiry::HonorHold,
            reference: None,
            created_at: Time::from_millis(0),
            returned: None,
            returned_truncated: false,
            as_of: None,
            position: None,
        };
        same(&shown, hold);
        shown.returned = Some(Vec::new());
        for state in [HoldState::Settled, HoldState::Released, HoldState::Lapsed] {
            shown.state = state;
            same(&shown, hold);
        }
        shown.expires_at = Some(Time::from_millis(1_700_000_000_123));
        shown.lots = lots();
        shown.lots_truncated = true;
        shown.context =
            Some(Context { gpu_types: Some(vec!["h100".into()]), ..Context::default() });
        shown.on_expiry = OnExpiry::Strict;
        let returned = |expired| ReturnedLot { grant: "g".into(), amount: sum(7), expired };
        shown.returned = Some(vec![returned(true), returned(false)]);
        shown.as_of = Some(Time::from_millis(5));
        shown.position = Some(u64::MAX);
        for reference in ["", "plain é 😀", "a\"b\\c", "line\nbreak\u{1}\u{7f}", "\u{2028}/"] {
            shown.reference = Some(reference.into());
            same(&shown, hold);
        }
    }

    #[test]
    fn a_written_charge_is_the_serialised_charge() {
        let mut shown = Charge {
            id: "c1".into(),
            account: "acme".into(),
            requested: sum(1),
            charged: sum(2),
            refunded: None,
            lots: lots(),
            lots_truncated: false,
            spendable_after: sum(-3),
            effective_at: None,
            created_at: Time::from_millis(9),
            as_of: None,
            position: None,
        };
        same(&shown, charge);
        shown.refunded = Some(sum(4));
        shown.effective_at = Some(Time::from_millis(1));
        shown.as_of = Some(Time::from_millis(2));
        shown.position = Some(3);
        same(&shown, charge);
    }
}

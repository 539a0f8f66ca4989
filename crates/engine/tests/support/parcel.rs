//! A machine that receives messages from a till: each once, in order.

use bursar_core::digest::{Digest, Digester};
use bursar_core::machine::{Machine, Stuck};
use bursar_core::message::Mark;
use bursar_core::time::Timestamp;
use bursar_engine::courier::SentMessage;
use bursar_engine::{Codec, CodecError, RecordOrigin};

use super::{numbers, put, signed};

/// A message with this amount panics.
pub const PANICS: i64 = 1_000_001;
/// Stands for a message that was set aside.
pub const SET_ASIDE: i64 = -1;

/// Receives one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take(pub SentMessage<i64>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Took {
    mark: Mark,
    amount: i64,
}

/// A message before this one is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parcel {
    pub mark: Mark,
    /// All amounts that arrived, in the order of arrival.
    pub amounts: Vec<i64>,
    now: Timestamp,
}

impl Machine for Parcel {
    type Command = Take;
    type Event = Took;
    type Reply = Mark;
    type Refusal = Gap;
    type Envelope = ();

    fn decide(
        &self,
        _now: Timestamp,
        (): &(),
        Take(sent): &Take,
        events: &mut Vec<Took>,
    ) -> Result<Mark, Gap> {
        if sent.number <= self.mark.number {
            return Ok(self.mark);
        }
        if sent.number > self.mark.number + 1 {
            return Err(Gap);
        }
        assert!(sent.message != PANICS, "panic on demand");
        let mark = Mark { number: sent.number, position: sent.position };
        events.push(Took { mark, amount: sent.message });
        Ok(mark)
    }

    fn apply(&mut self, at: Timestamp, took: &Took) {
        self.now = self.now.max(at);
        self.mark = took.mark;
        self.amounts.push(took.amount);
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    fn decide_due(&self, _now: Timestamp, _events: &mut Vec<Took>) {}

    fn message_name((): &(), Take(sent): &Take) -> Option<(u64, u64)> {
        Some((0, sent.number))
    }

    fn decide_set_aside(&self, stuck: Stuck<'_, Parcel>, events: &mut Vec<Took>) {
        if let Stuck::Message((), Take(sent)) = stuck {
            let mark = Mark { number: sent.number, position: sent.position };
            events.push(Took { mark, amount: SET_ASIDE });
        }
    }

    fn begin_group(&mut self) {}

    fn commit_group(&mut self) {}

    fn rollback_group(&mut self) {}

    fn digest(&self) -> Digest {
        let mut digester = Digester::new();
        digester.value(ParcelCodec.encode_state(self));
        digester.finish()
    }
}

#[derive(Copy, Clone, Debug)]
pub struct ParcelCodec;

impl Codec for ParcelCodec {
    type Machine = Parcel;

    fn genesis(&self) -> Parcel {
        Parcel::default()
    }

    fn encode(&self, _origin: RecordOrigin<'_, Parcel>, events: &[Took], body: &mut Vec<u8>) {
        for took in events {
            put(body, &[signed(took.mark.number), signed(took.mark.position), took.amount]);
        }
    }

    fn decode(&self, body: &[u8], events: &mut Vec<Took>) -> Result<(), CodecError> {
        for took in numbers(body)?.as_chunks::<3>().0 {
            let [number, position, amount] = *took;
            let mark = Mark { number: number.cast_unsigned(), position: position.cast_unsigned() };
            events.push(Took { mark, amount });
        }
        Ok(())
    }

    fn encode_state(&self, parcel: &Parcel) -> Vec<u8> {
        let mut out = Vec::new();
        let Mark { number, position } = parcel.mark;
        put(&mut out, &[signed(number), signed(position), parcel.now.millis()]);
        put(&mut out, &parcel.amounts);
        out
    }

    fn decode_state(&self, bytes: &[u8]) -> Result<Parcel, CodecError> {
        let numbers = numbers(bytes)?;
        let Some(([number, position, now], amounts)) = numbers.split_first_chunk::<3>() else {
            return Err(CodecError("the state is cut off".into()));
        };
        Ok(Parcel {
            mark: Mark { number: number.cast_unsigned(), position: position.cast_unsigned() },
            amounts: amounts.to_vec(),
            now: Timestamp::from_millis(*now),
        })
    }
}

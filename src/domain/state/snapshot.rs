//! A state as bytes and back, so that a long history need not be folded again.
//!
//! - A snapshot is always optional: bytes of another format, of another definition or with any damage give nothing, and
//!   the history is folded instead.
//! - What comes back is equal to what went in, indexes included, since they follow from the units.
//!
//! # Design
//! Fields one after another, numbers as LEB128, texts with their length before them, a digest at the end. `stored!`
//! writes both directions from one list of fields, so they cannot part. Whoever changes a list raises [`FORMAT`].

use super::course::{Course, Pause};
use super::effects::{Effects, Look};
use super::event::Handler;
use super::fan_out::Group;
use super::index::Indexes;
use super::requests::{Remembered, Requests};
use super::signals::{Signal, Signals};
use super::unit::{ChildRef, ChildWait, Out, Remote, Report, Sending, Status, Task, UnitState};
use super::units::{UnitKey, Units};
use super::{Phase, State, WindDown};
use crate::domain::definition::{Definition, StepIndex};
use crate::domain::{
    AbandonedChild, AcceptedReport, Cause, ChildRequest, Created, ExecutionId, ExecutionKey, Failure, Parent, Payload,
    Recipient, SessionId, SkipReason, StepEnd, StepResult, Timestamp, Uid, digest16,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// Format of the bytes that [`State::to_bytes`] makes.
const FORMAT: u16 = 7;

const DIGEST_BYTES: usize = 16;

impl State {
    /// Format number of what [`State::to_bytes`] makes.
    pub const SNAPSHOT_FORMAT: u16 = FORMAT;

    /// The state as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size_bytes() / 2);
        FORMAT.write(&mut out);
        self.definition.hash.write(&mut out);
        self.created.write(&mut out);
        self.start_time.write(&mut out);
        self.last_number.write(&mut out);
        self.last_time.write(&mut out);
        self.phase.write(&mut out);
        self.deleting.write(&mut out);
        self.wind_down.write(&mut out);
        self.close_time.write(&mut out);
        self.output.write(&mut out);
        self.terminate_reason.write(&mut out);
        self.end_failure.write(&mut out);
        self.course.write(&mut out);
        self.units.write(&mut out);
        self.handlers.write(&mut out);
        self.signals.write(&mut out);
        self.requests.write(&mut out);
        self.senders.write(&mut out);
        self.effects.write(&mut out);
        let digest = digest16(&[&out]);
        out.extend_from_slice(&digest);
        out
    }

    /// The state from bytes that [`State::to_bytes`] made with the same definition; nothing on any mismatch.
    #[must_use]
    pub fn from_bytes(definition: Arc<Definition>, bytes: &[u8]) -> Option<Self> {
        let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST_BYTES)?)?;
        if digest16(&[content]) != *digest {
            return None;
        }
        let input = &mut Reader(content);
        if u16::read(input)? != FORMAT || <[u8; 32]>::read(input)? != definition.hash {
            return None;
        }
        let mut state = Self {
            created: Stored::read(input)?,
            start_time: Stored::read(input)?,
            last_number: Stored::read(input)?,
            last_time: Stored::read(input)?,
            phase: Stored::read(input)?,
            deleting: Stored::read(input)?,
            wind_down: Stored::read(input)?,
            close_time: Stored::read(input)?,
            output: Stored::read(input)?,
            terminate_reason: Stored::read(input)?,
            end_failure: Stored::read(input)?,
            course: Stored::read(input)?,
            units: Stored::read(input)?,
            handlers: Stored::read(input)?,
            signals: Stored::read(input)?,
            requests: Stored::read(input)?,
            senders: Stored::read(input)?,
            effects: Stored::read(input)?,
            indexes: Indexes::default(),
            definition,
        };
        if !input.0.is_empty() || !state.units.fit(&state.definition) {
            return None;
        }
        state.rebuild_indexes();
        state.indexes.ready.take_changes();
        state.indexes.effects.forget_changes();
        Some(state)
    }
}

/// Bytes that are still to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

/// A value that goes into a snapshot and comes out of it again.
trait Stored: Sized {
    fn write(&self, out: &mut Vec<u8>);
    fn read(input: &mut Reader<'_>) -> Option<Self>;
}

/// Both directions of a struct, from the list of its fields.
macro_rules! stored {
    ($($name:ident { $($field:ident),+ })+) => {$(
        impl Stored for $name {
            fn write(&self, out: &mut Vec<u8>) {
                let Self { $($field),+ } = self;
                $($field.write(out);)+
            }

            fn read(input: &mut Reader<'_>) -> Option<Self> {
                $(let $field = Stored::read(input)?;)+
                Some(Self { $($field),+ })
            }
        }
    )+};
}

stored! {
    Parent { key, uid, id, run, unit, generation, attempt }
    Created {
        id, uid, run, workflow, version, definition_hash, input, labels, expire_time, trace_parent, parent, depth, begin_time,
        results
    }
    StepResult { step, end }
    Course { pause, next_input, generation, history_from, begin_time, deliveries, reports }
    Pause { number, time, reason }
    AcceptedReport { unit, delivery, hash }
    Handler { item, event }
    Failure { code, message, details, unit }
    WindDown { cause, number, time, give_up_time }
    Out { since, dispatch_time, check_time, expire_time, held }
    Report { delivery, hash }
    Task {
        input, first_time, attempt_time, attempt, delivery, lost, redelivery, session_id, worker_id, progress, reports, late
    }
    UnitState { status, blockers, task, output, failure, end_number, unknown, undone, given, generation, first_delivery, remote }
    ChildWait { expire_time, start_time, cancel_sent }
    ChildRef { id, uid }
    Recipient { id, uid, child }
    Sending { recipient, name, payload }
    Effects { abandoned, is_parent_told, look }
    AbandonedChild { child, has_started, since }
    ChildRequest { id, definition_hash, input, run, unit, generation, attempt, depth, trace_parent }
    Look { time, pause }
    UnitKey { step, item }
    Units { steps, items, groups }
    Signal { name, payload, expire_time, handler }
    Remembered { number, time, content }
}

/// Both directions of an enum, from its variants with their tags; a variant holds nothing, one value or named ones.
macro_rules! stored_enum {
    ($($name:ident { $($tag:literal => $variant:ident $(($value:ident))? $({ $($field:ident),+ })?),+ $(,)? })+) => {$(
        impl Stored for $name {
            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(($value))? $({ $($field),+ })? => {
                        out.push($tag);
                        $($value.write(out);)?
                        $($($field.write(out);)+)?
                    })+
                }
            }

            fn read(input: &mut Reader<'_>) -> Option<Self> {
                match input.bytes(1)?[0] {
                    $($tag => {
                        $(let $value = Stored::read(input)?;)?
                        $($(let $field = Stored::read(input)?;)+)?
                        Some(Self::$variant $(($value))? $({ $($field),+ })?)
                    })+
                    _ => None,
                }
            }
        }
    )+};
}

stored_enum! {
    SkipReason {
        1 => WhenFalse,
        2 => NothingUpstream,
    }
    StepEnd {
        1 => Succeeded(output),
        2 => Failed(failure),
        3 => Skipped(reason),
    }
    Phase {
        1 => Running,
        2 => WindingDown,
        3 => Succeeded,
        4 => Failed,
        5 => Cancelled,
        6 => TimedOut,
        7 => Terminated,
    }
    Cause {
        1 => Failure(failure),
        2 => Cancel(reason),
        3 => Timeout,
    }
    Status {
        1 => Pending { free_since },
        2 => Waiting { since },
        3 => Out(delivery),
        4 => BackingOff { since, retry_time },
        5 => Spent,
        6 => Sleeping { since, wake_time },
        7 => Awaiting { since, expire_time, number },
        8 => Succeeded,
        9 => Failed,
        10 => Skipped,
        11 => Cancelled,
        12 => FanOut { since },
        13 => Child(wait),
        14 => Sending { since, number },
    }
    Remote {
        1 => Child(child),
        2 => Recipient(sending),
    }
}

impl Stored for u64 {
    fn write(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = input.bytes(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

/// Numbers that are stored as `u64`.
macro_rules! stored_number {
    ($($type:ty),+) => {$(
        impl Stored for $type {
            fn write(&self, out: &mut Vec<u8>) {
                (*self as u64).write(out);
            }

            fn read(input: &mut Reader<'_>) -> Option<Self> {
                Self::try_from(u64::read(input)?).ok()
            }
        }
    )+};
}

stored_number!(u16, u32, usize);

impl<const N: usize> Stored for [u8; N] {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        input.bytes(N)?.try_into().ok()
    }
}

impl Stored for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(input.bytes(1)?[0] == 1)
    }
}

impl Stored for Timestamp {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_micros().to_le_bytes().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(Self::from_micros(i64::from_le_bytes(Stored::read(input)?)))
    }
}

impl Stored for Duration {
    fn write(&self, out: &mut Vec<u8>) {
        u64::try_from(self.as_micros()).unwrap_or(u64::MAX).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        u64::read(input).map(Self::from_micros)
    }
}

impl Stored for Arc<str> {
    fn write(&self, out: &mut Vec<u8>) {
        self.len().write(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let length = usize::read(input)?;
        std::str::from_utf8(input.bytes(length)?).ok().map(Self::from)
    }
}

impl Stored for Payload {
    fn write(&self, out: &mut Vec<u8>) {
        self.len().write(out);
        out.extend_from_slice(self.as_str().as_bytes());
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Arc::<str>::read(input).map(Self::from_json)
    }
}

impl Stored for StepIndex {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        u32::read(input).map(Self)
    }
}

/// Where the items stand follows from the list.
impl Stored for Group {
    fn write(&self, out: &mut Vec<u8>) {
        let Self { items, next, again, open, failed, output_bytes, failure, places: _ } = self;
        items.write(out);
        next.write(out);
        again.write(out);
        open.write(out);
        failed.write(out);
        output_bytes.write(out);
        failure.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let items = Payload::read(input)?;
        Some(Self {
            next: Stored::read(input)?,
            again: Stored::read(input)?,
            open: Stored::read(input)?,
            failed: Stored::read(input)?,
            output_bytes: Stored::read(input)?,
            failure: Stored::read(input)?,
            ..Self::new(items)
        })
    }
}

impl Stored for ExecutionId {
    fn write(&self, out: &mut Vec<u8>) {
        Arc::<str>::from(self.as_str()).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Self::parse(&Arc::<str>::read(input)?)
    }
}

impl Stored for ExecutionKey {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.to_le_bytes().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(Self(i64::from_le_bytes(Stored::read(input)?)))
    }
}

impl Stored for Uid {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.as_bytes().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(Self(Uuid::from_bytes(Stored::read(input)?)))
    }
}

impl Stored for SessionId {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.as_bytes().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(Self(Uuid::from_bytes(Stored::read(input)?)))
    }
}

impl<T: Stored> Stored for Box<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        T::read(input).map(Self::new)
    }
}

impl<T: Stored> Stored for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        if bool::read(input)? { T::read(input).map(Some) } else { Some(None) }
    }
}

/// A list, which never claims more room than there are bytes left to fill it.
fn put_list<'a, T: Stored + 'a>(items: impl ExactSizeIterator<Item = &'a T>, out: &mut Vec<u8>) {
    items.len().write(out);
    for item in items {
        item.write(out);
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        put_list(self.iter(), out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let count = usize::read(input)?;
        let mut list = Self::with_capacity(count.min(input.0.len()));
        for _ in 0..count {
            list.push(T::read(input)?);
        }
        Some(list)
    }
}

impl<T: Stored + Ord> Stored for BTreeSet<T> {
    fn write(&self, out: &mut Vec<u8>) {
        put_list(self.iter(), out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Vec::read(input).map(|list| list.into_iter().collect())
    }
}

impl<T: Stored> Stored for VecDeque<T> {
    fn write(&self, out: &mut Vec<u8>) {
        put_list(self.iter(), out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Vec::read(input).map(Self::from)
    }
}

impl Stored for String {
    fn write(&self, out: &mut Vec<u8>) {
        Arc::<str>::from(self.as_str()).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Arc::<str>::read(input).map(|text| text.to_string())
    }
}

impl<K: Stored + Ord, V: Stored> Stored for BTreeMap<K, V> {
    fn write(&self, out: &mut Vec<u8>) {
        self.len().write(out);
        for (key, value) in self {
            key.write(out);
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let mut map = Self::new();
        for _ in 0..usize::read(input)? {
            map.insert(K::read(input)?, V::read(input)?);
        }
        Some(map)
    }
}

impl Stored for Signals {
    fn write(&self, out: &mut Vec<u8>) {
        self.len().write(out);
        for (number, signal) in self.iter() {
            number.write(out);
            signal.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let mut signals = Self::default();
        for _ in 0..usize::read(input)? {
            signals.insert(u64::read(input)?, Signal::read(input)?);
        }
        Some(signals)
    }
}

impl Stored for Requests {
    fn write(&self, out: &mut Vec<u8>) {
        self.len().write(out);
        for (key, remembered) in self.iter() {
            key.write(out);
            remembered.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let mut requests = Self::default();
        for _ in 0..usize::read(input)? {
            requests.insert(Stored::read(input)?, Stored::read(input)?);
        }
        Some(requests)
    }
}

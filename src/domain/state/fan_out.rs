//! What a step with `for_each` goes through, and how far it has come.
//!
//! - Items begin in order, by a cursor; what has not begun costs nothing but its place in the list.
//! - One item's end costs the same whatever their number: the group counts.

use crate::domain::definition::ITEMS_MAX;
use crate::domain::{Failure, Payload, json};
use std::{collections::BTreeSet, sync::Arc};

/// The items of one fan-out.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::domain) struct Group {
    /// The list.
    pub(in crate::domain) items: Payload,
    /// Where each item stands in the list's text; follows from it.
    pub(super) places: Arc<[(u32, u32)]>,
    /// The item that begins next, once those that run again have; those before it have begun.
    pub(in crate::domain) next: u32,
    /// Items before it that run again and have not begun to.
    pub(super) again: BTreeSet<u32>,
    /// Items that have begun and not ended.
    pub(in crate::domain) open: u32,
    /// Items that failed for good.
    pub(in crate::domain) failed: u32,
    /// Bytes of the output as a list, as far as items have ended.
    pub(in crate::domain) output_bytes: usize,
    /// Why the first of the items that failed did.
    pub(in crate::domain) failure: Option<Box<Failure>>,
}

impl Group {
    /// Bytes of the output of no items.
    pub(super) const EMPTY_BYTES: usize = "[]".len();

    /// The group of a list.
    pub(super) fn new(items: Payload) -> Self {
        let places = places(items.as_str()).unwrap_or_default().into();
        Self {
            items,
            places,
            next: 0,
            again: BTreeSet::new(),
            open: 0,
            failed: 0,
            output_bytes: Self::EMPTY_BYTES,
            failure: None,
        }
    }

    /// How many items there are.
    pub(in crate::domain) fn count(&self) -> u32 {
        u32::try_from(self.places.len()).expect("a list of 2 MiB has fewer items")
    }

    /// JSON text of an item.
    pub(in crate::domain) fn value(&self, item: u32) -> Option<&str> {
        let (from, to) = *self.places.get(usize::try_from(item).ok()?)?;
        self.items.as_str().get(from as usize..to as usize)
    }

    /// Whether another item may begin.
    pub(super) fn has_more(&self, parallel_max: Option<u32>) -> bool {
        self.next_item() < self.count() && parallel_max.is_none_or(|most| self.open < most)
    }

    /// The item that begins next; the count of all of them if none does.
    pub(in crate::domain) fn next_item(&self) -> u32 {
        self.again.first().copied().unwrap_or(self.next)
    }

    /// Whether all items have ended.
    pub(super) fn is_done(&self) -> bool {
        self.next_item() == self.count() && self.open == 0
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.items.len() + self.places.len() * size_of::<(u32, u32)>()
    }
}

/// Where the items of a JSON list stand in its text, or why it has none.
pub(in crate::domain) fn places(list: &str) -> Result<Vec<(u32, u32)>, NotItems> {
    let mut cursor = json::Cursor::new(list);
    if !cursor.take(b'[') {
        return Err(NotItems::NoList);
    }
    let mut places = Vec::new();
    if cursor.take(b']') {
        return Ok(places);
    }
    loop {
        let item = cursor.slice().map_err(|_| NotItems::NoList)?;
        let to = cursor.offset();
        let offset = |at: usize| u32::try_from(at).expect("a payload has at most 2 MiB");
        places.push((offset(to - item.len()), offset(to)));
        if places.len() > ITEMS_MAX {
            return Err(NotItems::TooMany);
        }
        if !cursor.take(b',') {
            return Ok(places);
        }
    }
}

/// Why a value cannot be gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) enum NotItems {
    /// It is no list.
    NoList,
    /// It has more than [`ITEMS_MAX`] items.
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_text() {
        let group = Group::new(Payload::from_json(r#" [ 1 , {"a": [2, "]"]}, "x,y" ,null] "#));
        let values: Vec<_> = (0..group.count()).filter_map(|item| group.value(item)).collect();
        assert_eq!(values, ["1", r#"{"a": [2, "]"]}"#, "\"x,y\"", "null"]);
        assert_eq!(group.value(4), None);
    }

    #[test]
    fn only_a_list_within_the_limit_has_items() {
        assert_eq!(places("[]"), Ok(Vec::new()));
        for other in ["null", "{}", "1", "\"[]\""] {
            assert_eq!(places(other), Err(NotItems::NoList), "{other}");
        }
        let list = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        assert_eq!(places(&list(ITEMS_MAX)).map(|places| places.len()), Ok(ITEMS_MAX));
        assert_eq!(places(&list(ITEMS_MAX + 1)), Err(NotItems::TooMany));
    }
}

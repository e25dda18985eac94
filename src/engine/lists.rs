//! Lists of executions: as much of a page as is found in a short time.

use super::Engine;
use crate::store::{Error, ExecutionState, ListCursor, ListFilter, ListPage};
use crate::wire::filter::Filter;
use std::{collections::BTreeSet, time::Duration};

/// After so long a page is answered as far as it has come. The store looks at no more entries at a time than take some
/// milliseconds, so an answer takes little longer than this, however many executions there are and however few match.
const SEARCH_MAX: Duration = Duration::from_millis(20);

impl Engine {
    /// A page of at most `size` executions, the newest start first. Where few match it may have fewer, even none, and yet say
    /// where the list goes on: the caller asks on from there.
    pub async fn list(&self, filter: &ListFilter, after: Option<ListCursor>, size: usize) -> Result<ListPage, Error> {
        let (store, clock) = (&self.core.store, &self.core.clock);
        let until = clock.monotonic() + SEARCH_MAX;
        let mut page = store.list(filter, after, size).await?;
        while let Some(next) = page.next
            && page.rows.len() < size
            && clock.monotonic() < until
        {
            let more = store.list(filter, Some(next), size - page.rows.len()).await?;
            page.rows.extend(more.rows);
            page.next = more.next;
        }
        Ok(page)
    }
}

/// A filter as the store takes it. One that [nothing can fit](Filter::is_empty) must not be asked for.
#[must_use]
pub fn filter_of(filter: Filter) -> ListFilter {
    let asked = |numbers: BTreeSet<i32>| {
        // The rows have the numbers of the API.
        let is_asked = |state: &ExecutionState| numbers.contains(&i32::from(*state as i16));
        ExecutionState::ALL.into_iter().filter(is_asked).collect()
    };
    ListFilter {
        states: filter.states.map(asked).unwrap_or_default(),
        workflow: filter.workflow.map(Into::into),
        labels: filter.labels,
        start_from: filter.start_from,
        start_until: filter.start_until,
    }
}

//! Lists of executions: as much of a page as is found in a short time.

use super::Engine;
use crate::store::{Error, ListCursor, ListFilter, ListPage};
use std::time::Duration;

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

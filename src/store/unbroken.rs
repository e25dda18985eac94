//! Work that is not broken off when its caller stops waiting.

/// Runs to its end, though the caller may stop waiting. A panic in it is the caller's.
pub(super) async fn unbroken<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await {
        Ok(answer) => answer,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going; nothing waits for an answer any more.
            Err(_) => std::future::pending().await,
        },
    }
}

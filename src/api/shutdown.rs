//! The signals that end a server: the first one asks, the second one does not.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT. From then on another one ends the process at once, with the status that a shell gives
/// to a process that a signal has ended.
///
/// # Errors
/// The signals cannot be listened to.
pub async fn requested() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: shutting down; another signal ends the process at once"),
        _ = interrupt.recv() => tracing::info!("SIGINT: shutting down; another signal ends the process at once"),
    }
    // Nobody waits for this task: it ends with the process, or it ends the process.
    tokio::spawn(async move {
        let status = tokio::select! {
            _ = terminate.recv() => 128 + libc::SIGTERM,
            _ = interrupt.recv() => 128 + libc::SIGINT,
        };
        tracing::warn!("a second signal: ending at once");
        std::process::exit(status);
    });
    Ok(())
}

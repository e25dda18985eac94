//! Connections for much traffic over few of them.

use crate::cli::{client, error::Error};
use tonic::transport::Channel;

/// Windows that no burst of small messages fills, so that the network never waits for a window update.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Connects to `HOST:PORT`, or says why not.
pub(super) async fn connect(address: &str) -> Result<Channel, Error> {
    client::parse_endpoint(address)
        .map_err(Error::usage)?
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .connect()
        .await
        .map_err(|error| tonic::Status::from_error(error.into()).into())
}

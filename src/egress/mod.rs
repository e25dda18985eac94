//! Makes the requests of `http` steps: one request with its redirects in, one result of the step out.
//!
//! - Only http and https, only to hosts that the operator allowed, and only to addresses that are public or in a network
//!   that the operator named. A name is resolved once for each request, and the connection goes to the very address
//!   that was judged. A redirect is judged in the same way.
//! - Whatever comes from the other side is bounded: the head, the body, the number of redirects.
//! - Nothing here knows tasks, retries or time limits: dropping a call ends its connection.
//!
//! # Design
//!
//! Each request has a connection of its own, by HTTP/1.1. A pool would save a handshake, and would need proof that a
//! connection that was judged for one name is not used for another. Proxies from the environment are not used: they
//! would resolve names themselves, unjudged.

mod address;
mod answer;
mod client;
mod connect;
mod request;
#[cfg(test)]
mod tests;
mod tls;

pub(crate) use answer::{Failed, of_fault, of_response};
pub(crate) use client::Client;
pub(crate) use request::{Defaults, Request};

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The step asks for what is no request.
    Invalid(String),
    /// The operator does not allow it.
    Forbidden(String),
    /// The network or the other side did not work.
    Failed(String),
    /// The response is larger than is taken.
    TooLarge(String),
}

//! The messages and services of `proto/`, generated at build time, and their JSON form.

pub mod json;

/// Google's annotations, which descriptors mention.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
pub mod google {
    pub mod api {
        tonic::include_proto!("google.api");
    }
}

/// gRPC's health service.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, rustdoc::bare_urls, reason = "generated code")]
pub mod health {
    tonic::include_proto!("grpc.health.v1");

    /// Its descriptors, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/health.bin"));
}

/// Orbit's own packages.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
pub mod orbit {
    pub mod workflow {
        pub mod v1 {
            tonic::include_proto!("orbit.workflow.v1");
        }
    }
    pub mod worker {
        pub mod v1 {
            tonic::include_proto!("orbit.worker.v1");
        }
    }
    pub mod admin {
        pub mod v1 {
            tonic::include_proto!("orbit.admin.v1");
        }
    }
    pub mod schedule {
        pub mod v1 {
            tonic::include_proto!("orbit.schedule.v1");
        }
    }
}

pub use orbit::{admin::v1 as admin, schedule::v1 as schedule, worker::v1 as worker, workflow::v1 as workflow};

/// All descriptors with their options and comments, as the compiler wrote them.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

//! Makes Rust from `proto/`: messages, services, their JSON form, the routes of the HTTP gateway, and the descriptors
//! for reflection. No `protoc` is needed. A bad HTTP annotation fails the build.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

#[path = "build/gateway.rs"]
mod gateway;
#[path = "build/json.rs"]
mod json;
#[path = "build/names.rs"]
mod names;
#[path = "build/rule.rs"]
mod rule;

type Error = Box<dyn std::error::Error>;

/// The services, and what no service mentions; all else follows from their imports.
const FILES: [&str; 4] = [
    "orbit/worker/v1/worker_service.proto",
    "orbit/admin/v1/admin_service.proto",
    "orbit/schedule/v1/schedule_service.proto",
    "orbit/workflow/v1/error_reason.proto",
];

/// The message whose JSON form is the document that it holds, not an object of its fields.
const PAYLOAD: &str = "orbit.workflow.v1.Payload";

fn main() -> Result<(), Error> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=migrations");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(FILES)?;
    // The bytes as the compiler wrote them: typed descriptor sets drop `google.api.http`.
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    let pool = compiler.descriptor_pool();
    fs::write(out.join("json.rs"), json::generate(&pool)?)?;
    fs::write(out.join("gateway.rs"), gateway::generate(&pool)?)?;

    let mut config = prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure().compile_fds_with_config(compiler.file_descriptor_set(), config)?;
    health(&out)
}

/// gRPC's own health service: compiled apart, since it is no part of the API that the gateway serves.
fn health(out: &Path) -> Result<(), Error> {
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).open_file("grpc/health/v1/health.proto")?;
    fs::write(out.join("health.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

//! Makes Rust from `proto/`: messages, services and the descriptors for reflection. No `protoc` is needed.

use std::{env, error::Error, fs, path::PathBuf};

const FILES: [&str; 2] = ["orbit/worker/v1/worker_service.proto", "orbit/admin/v1/admin_service.proto"];

fn main() -> Result<(), Box<dyn Error>> {
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

    let mut config = prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure().compile_fds_with_config(compiler.file_descriptor_set(), config)?;
    Ok(())
}

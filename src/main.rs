//! The `orbit` program.

use std::process::ExitCode;

// Many small, short-lived values on few cores.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    orbit::cli::main()
}

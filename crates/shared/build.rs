//! A new migration must reach the embedded migrator.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}

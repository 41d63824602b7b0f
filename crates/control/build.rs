//! Generates the messages and the service of `proto/weft.proto`; needs `protoc`.

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=proto/weft.proto");
    tonic_prost_build::configure().bytes(".weft").compile_protos(&["proto/weft.proto"], &["proto"])
}

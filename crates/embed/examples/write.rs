//! Writes podbayd for this machine's architecture to a file: `cargo run -p podbay-embed --example write -- FILE`.

use std::os::unix::fs::PermissionsExt;

fn main() -> std::io::Result<()> {
    let file = std::env::args_os().nth(1).ok_or_else(|| std::io::Error::other("name the file to write"))?;
    let podbayd = podbay_embed::daemon(std::env::consts::ARCH);
    let podbayd = podbayd.ok_or_else(|| std::io::Error::other("this build has no podbayd for this architecture"))?;
    std::fs::write(&file, podbayd)?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))
}

//! The stream to a server.

use std::io;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The first address of the host that answers, of all asked at the same time.
pub(super) async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for address in tokio::net::lookup_host((host, port)).await? {
        attempts.spawn(TcpStream::connect(address));
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    while let Some(ended) = attempts.join_next().await {
        match ended {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_aborted) => {}
        }
    }
    Err(last)
}

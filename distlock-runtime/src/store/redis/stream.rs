//! A stream to a server, and what many tasks write to it at the same moment.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
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

/// So many bytes are no packet to be spared.
const LONG: usize = 1024;

/// Gathers what tasks that are ready at the same moment have to say into one write.
///
/// The client crate writes as soon as one task has left a command with it, before the next task has had its turn; with
/// Nagle's algorithm off, as it must be lest a command waits for the answer to another, each command is then a packet of
/// its own. So the first write lets the tasks that are ready go first, unless it is long: the server may begin with that.
/// Nobody waits for a timer, and a task that is alone loses next to nothing.
#[derive(Debug)]
pub(super) struct Gather<S> {
    stream: S,
    /// The others have had their turn.
    is_due: bool,
}

impl<S> Gather<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, is_due: false }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.is_due && bytes.len() < LONG {
            self.is_due = true;
            // A task that wakes itself goes behind those that are ready.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.is_due = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn the_first_write_lets_other_tasks_go_first_and_none_is_lost() {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut near = Gather::new(near);
        let other = tokio::spawn(async { std::time::Instant::now() });
        for text in ["one", "two"] {
            near.write_all(text.as_bytes()).await.unwrap();
            near.flush().await.unwrap();
            let mut read = [0; 3];
            far.read_exact(&mut read).await.unwrap();
            assert_eq!(read, text.as_bytes());
        }
        assert!(other.is_finished());
    }
}

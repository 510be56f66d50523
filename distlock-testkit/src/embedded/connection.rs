//! One connection of an embedded server: a task that takes commands from a stream and writes answers to it.

use std::future::pending;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::select;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::core::{Outgoing, Parcel};
use super::node::{Admitted, Node};
use crate::fault::Fault;
use crate::wire::{Answer, Command, Garbled, Inbox, Protocol};

/// What a connection runs over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Makes the end of the stream a reset, if it knows one.
    fn reset_at_end(&self) {}
}

impl Stream for DuplexStream {}

impl Stream for TcpStream {
    fn reset_at_end(&self) {
        // The connection ends in any case.
        let _ = self.set_zero_linger();
    }
}

/// Serves one connection until either side ends it.
pub(crate) async fn serve(node: Arc<Node>, admitted: Admitted, stream: impl Stream) {
    let Admitted { client, outbox, cut } = admitted;
    let connection = Connection {
        node: Arc::clone(&node),
        client,
        stream,
        inbox: Inbox::default(),
        outbox,
        cut,
        delayed: None,
        next: None,
    };
    connection.run().await;
    node.closed(client);
}

struct Connection<S> {
    node: Arc<Node>,
    client: u64,
    stream: S,
    inbox: Inbox,
    outbox: mpsc::UnboundedReceiver<Outgoing>,
    cut: watch::Receiver<bool>,
    /// A command that arrives later; all behind it waits.
    delayed: Option<(Instant, Command)>,
    /// What goes out next.
    next: Option<Outgoing>,
}

impl<S: Stream> Connection<S> {
    async fn run(mut self) {
        loop {
            if let Err(Garbled(what)) = self.take_commands() {
                let mut bytes = Vec::new();
                Answer::Error(format!("ERR Protocol error: {what}")).write(Protocol::Resp2, &mut bytes);
                write(&mut self.stream, &mut self.cut, &bytes).await;
                return;
            }
            let arrival = self.delayed.as_ref().map(|(at, _)| *at);
            // In this order, so that every run of a test takes the same way.
            select! {
                biased;
                () = until_cut(&mut self.cut) => return,
                parcel = next(&mut self.outbox, &mut self.next) => match parcel {
                    Parcel::Bytes(bytes) => {
                        // Not the end: a client that is gone has still sent what it has sent.
                        write(&mut self.stream, &mut self.cut, &bytes).await;
                    }
                    Parcel::End { reset } => {
                        if reset {
                            self.stream.reset_at_end();
                        }
                        return;
                    }
                },
                () = at(arrival) => {
                    if let Some((_, command)) = self.delayed.take() {
                        self.node.arrived(self.client, command, None);
                    }
                }
                // A client that leaves while a command of its is held up is noticed after that.
                read = self.stream.read_buf(self.inbox.buffer()), if arrival.is_none() => {
                    if !read.is_ok_and(|bytes| bytes > 0) {
                        return;
                    }
                }
            }
        }
    }

    /// Hands on what has come in whole, up to a command that is to arrive later.
    fn take_commands(&mut self) -> Result<(), Garbled> {
        while self.delayed.is_none() {
            let command = match self.inbox.next() {
                Ok(Some(command)) => command,
                Ok(None) => break,
                // A server says what it did not understand, and closes.
                Err(garbled) => return Err(garbled),
            };
            match self.node.rules.decide(&command) {
                Some(Fault::DelayCommand(by)) => self.delayed = Some((Instant::now() + by, command)),
                fault => self.node.arrived(self.client, command, fault),
            }
        }
        Ok(())
    }
}

/// The next parcel, once it may go out. Cancel safe: it stays in `next` until then.
async fn next(outbox: &mut mpsc::UnboundedReceiver<Outgoing>, next: &mut Option<Outgoing>) -> Parcel {
    if next.is_none() {
        *next = outbox.recv().await;
    }
    at_once_or(next.as_ref().and_then(|outgoing| outgoing.not_before)).await;
    match next.take() {
        Some(outgoing) => outgoing.what,
        // The server has forgotten this connection, and says so by cutting it.
        None => pending().await,
    }
}

async fn at_once_or(moment: Option<Instant>) {
    if let Some(moment) = moment {
        sleep_until(moment).await;
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

/// Returns once the server cuts the connection, or has forgotten it.
async fn until_cut(cut: &mut watch::Receiver<bool>) {
    let _ = cut.wait_for(|cut| *cut).await;
}

/// Writes all of it, unless the connection is cut meanwhile or broken.
async fn write(stream: &mut impl Stream, cut: &mut watch::Receiver<bool>, bytes: &[u8]) {
    select! {
        biased;
        () = until_cut(cut) => {}
        _ = stream.write_all(bytes) => {}
    }
}

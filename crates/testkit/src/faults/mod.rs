//! A proxy that cuts, holds back and loses what passes between two processes.

mod frames;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use frames::{AnswerReader, FrameReader, RequestPart, RequestReader};

/// Where the connection of an append is cut.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CutPoint {
    /// After this many thousandths of the request. The database never has the whole of it.
    Request(u32),
    /// The database has the whole request; after this many thousandths of its answer. At 1000 the client has all of it.
    Answer(u32),
    /// The client sees a cut. The database gets the request when [`FaultProxy::deliver_late`] is called.
    Late,
}

/// An append whose connection was cut.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CutAppend {
    /// Where.
    pub at: CutPoint,
    /// The bytes that were passed on.
    pub passed: usize,
    /// The bytes there were.
    pub length: usize,
}

/// What becomes of bytes and new connections.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Passage {
    /// They pass.
    #[default]
    Open,
    /// They wait, and pass later, as over a network that drops packets for some time.
    Held,
    /// They are swallowed. When the passage is open again, connections that lost bytes are cut.
    Lost,
}

/// What is understood of the bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Protocol {
    Postgres,
    Plain,
}

#[derive(Debug, Default)]
struct ProxyState {
    passage: Passage,
    armed: Option<CutPoint>,
    cuts: Vec<CutAppend>,
    /// Appends that the database did not get yet, with their connections.
    late: Vec<(Vec<u8>, TcpStream)>,
    /// Both ends of every connection.
    links: Vec<[TcpStream; 2]>,
    closed: bool,
}

#[derive(Debug)]
struct ProxyShared {
    protocol: Protocol,
    target: SocketAddr,
    state: Mutex<ProxyState>,
    changed: Condvar,
}

/// A listener that passes every connection on to another address.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<ProxyShared>,
}

impl FaultProxy {
    /// A proxy before a PostgreSQL server whose clients do not encrypt. It knows the appends of journals.
    ///
    /// # Errors
    /// If no port can be bound.
    pub fn postgres(target: SocketAddr) -> std::io::Result<FaultProxy> {
        FaultProxy::start(target, Protocol::Postgres)
    }

    /// A proxy before any server.
    ///
    /// # Errors
    /// If no port can be bound.
    pub fn plain(target: SocketAddr) -> std::io::Result<FaultProxy> {
        FaultProxy::start(target, Protocol::Plain)
    }

    fn start(target: SocketAddr, protocol: Protocol) -> std::io::Result<FaultProxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(ProxyShared { protocol, target, state, changed });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.lock().closed {
                    return;
                }
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.link(client));
            }
        });
        Ok(FaultProxy { address, shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts the connection of the next append.
    pub fn cut_next_append(&self, at: CutPoint) {
        self.shared.lock().armed = Some(at);
    }

    /// The appends that were cut, in order.
    #[must_use]
    pub fn cuts(&self) -> Vec<CutAppend> {
        self.shared.lock().cuts.clone()
    }

    /// Gives the database the appends that were held back by [`CutPoint::Late`]; returns how many.
    pub fn deliver_late(&self) -> usize {
        let late = std::mem::take(&mut self.shared.lock().late);
        for (request, database) in &late {
            // It may have closed the connection.
            let _ = (&mut &*database).write_all(request);
            let _ = database.shutdown(Shutdown::Write);
        }
        late.len()
    }

    /// Sets what becomes of bytes from now on.
    pub fn set_passage(&self, passage: Passage) {
        self.shared.lock().passage = passage;
        self.shared.changed.notify_all();
    }

    /// Cuts every connection.
    pub fn cut_all(&self) {
        for link in self.shared.lock().links.drain(..) {
            link.iter().for_each(cut);
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        self.cut_all();
        // Ends the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// Both directions end; the other side may have gone already.
fn cut(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

/// The part of a piece that is passed on.
fn share(length: usize, thousandths: u32) -> usize {
    length * thousandths.min(1000) as usize / 1000
}

impl ProxyShared {
    fn lock(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until bytes may pass. Returns whether they do, or are swallowed.
    fn admit(&self) -> bool {
        let mut state = self.lock();
        while state.passage == Passage::Held && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.passage != Passage::Lost
    }

    /// Waits until what was swallowed would pass again.
    fn until_found(&self) {
        let mut state = self.lock();
        while state.passage == Passage::Lost && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Passes one connection on, until either end closes it.
    fn link(self: Arc<ProxyShared>, client: TcpStream) {
        if !self.admit() {
            self.until_found();
            return cut(&client);
        }
        let Ok(server) = TcpStream::connect(self.target) else { return cut(&client) };
        let copies = || Some([client.try_clone().ok()?, server.try_clone().ok()?]);
        let (Some(ends), Some(kept), Some(back)) = (copies(), copies(), copies()) else {
            return cut(&client);
        };
        for end in &ends {
            // Without it small messages wait for each other.
            let _ = end.set_nodelay(true);
        }
        {
            let mut state = self.lock();
            state.links.retain(|link| link[0].peer_addr().is_ok() && link[1].peer_addr().is_ok());
            state.links.push(kept);
        }
        let wanted = Arc::new(Mutex::new(None));
        let (shared, answer) = (Arc::clone(&self), Arc::clone(&wanted));
        let answers = thread::spawn(move || shared.pass_answers(back, &answer));
        self.pass_requests(ends, &wanted);
        // It ends when its connection does; a panic there is a fault of the proxy and printed by itself.
        let _ = answers.join();
    }

    /// Writes if bytes may pass; returns whether the connection goes on.
    fn write(&self, mut to: &TcpStream, bytes: &[u8]) -> bool {
        if !self.admit() {
            self.until_found();
            return false;
        }
        to.write_all(bytes).is_ok()
    }

    fn pass_requests(&self, [client, server]: [TcpStream; 2], wanted: &Mutex<Option<Wanted>>) {
        let (mut frames, mut requests) = (FrameReader::of_client(), RequestReader::default());
        let mut bytes = vec![0; 1 << 16];
        'open: while let Ok(read @ 1..) = (&client).read(&mut bytes) {
            if self.protocol == Protocol::Plain {
                if !self.write(&server, &bytes[..read]) {
                    break;
                }
                continue;
            }
            frames.push(&bytes[..read]);
            while let Some(frame) = frames.next_frame() {
                let goes_on = match requests.take(frame) {
                    None => true,
                    Some(RequestPart::Other(frame)) => self.write(&server, &frame),
                    Some(RequestPart::Append(request, number)) => {
                        if !self.append(&request, number, [&client, &server], wanted) {
                            return;
                        }
                        true
                    }
                };
                if !goes_on {
                    break 'open;
                }
            }
        }
        cut(&client);
        cut(&server);
    }

    /// Passes an append on, or cuts it; returns whether the connection goes on.
    fn append(
        &self,
        request: &[u8],
        number: u64,
        [client, server]: [&TcpStream; 2],
        wanted: &Mutex<Option<Wanted>>,
    ) -> bool {
        let armed = self.lock().armed.take();
        if let Some(at @ CutPoint::Answer(thousandths)) = armed {
            let answer = Wanted { number, at, thousandths };
            *wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        }
        let note = |at, passed| {
            self.lock().cuts.push(CutAppend { at, passed, length: request.len() });
            cut(client);
        };
        match armed {
            None | Some(CutPoint::Answer(_)) => {
                if self.write(server, request) {
                    return true;
                }
                cut(client);
                cut(server);
            }
            Some(at @ CutPoint::Request(thousandths)) => {
                let passed = share(request.len() - 1, thousandths);
                self.write(server, &request[..passed]);
                note(at, passed);
                cut(server);
            }
            Some(at @ CutPoint::Late) => {
                let held = server.try_clone().map(|database| (request.to_vec(), database));
                self.lock().late.extend(held);
                note(at, 0);
            }
        }
        false
    }

    fn pass_answers(&self, [client, server]: [TcpStream; 2], wanted: &Mutex<Option<Wanted>>) {
        let (mut frames, mut answers) = (FrameReader::of_server(), AnswerReader::default());
        let mut bytes = vec![0; 1 << 16];
        'open: while let Ok(read @ 1..) = (&server).read(&mut bytes) {
            if self.protocol == Protocol::Plain {
                if !self.write(&client, &bytes[..read]) {
                    break;
                }
                continue;
            }
            frames.push(&bytes[..read]);
            while let Some(frame) = frames.next_frame() {
                let cut_at = *wanted.lock().unwrap_or_else(PoisonError::into_inner);
                let (answer, is_wanted) = answers.take(frame, cut_at.map(|cut| cut.number));
                if let Some(Wanted { at, thousandths, .. }) = cut_at.filter(|_| is_wanted) {
                    let passed = share(answer.len(), thousandths);
                    self.write(&client, &answer[..passed]);
                    self.lock().cuts.push(CutAppend { at, passed, length: answer.len() });
                    break 'open;
                }
                if !self.write(&client, &answer) {
                    break 'open;
                }
            }
        }
        cut(&client);
        cut(&server);
    }
}

/// The answer after a part of which its connection is cut.
#[derive(Copy, Clone, Debug)]
struct Wanted {
    number: u64,
    at: CutPoint,
    thousandths: u32,
}

//! `StreamTasks`: tasks, reports and heartbeats as batched frames.
//!
//! - The response stream is the writer; a task of its own reads (`reader.rs`). Reports run at the same time, each
//!   answered when it is durable; whatever is ready goes into one frame, up to the worker's largest message.
//! - The writer never outlives its call: when the call is gone, tasks that were not sent go back to their queue, and
//!   reports that were read still count.
//! - It ends by itself: after ten minutes, moved by up to a tenth, when the server drains, when a newer connection takes
//!   the session over. What was read before is answered first.

use super::reader::{self, Note};
use crate::api::{call::Calls, connection::moved, render, status::Refusal};
use crate::clock::{self, Entropy};
use crate::engine::{self, Engine, Outlet};
use crate::proto::worker::{StreamTasksRequest, StreamTasksResponse};
use crate::telemetry;
use crate::wire::Invalid;
use futures_util::{FutureExt, stream};
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Status, Streaming};

/// Age at which a stream ends, before it is moved by up to a tenth: load spreads again over the servers there are.
const AGE: Duration = Duration::from_mins(10);

/// How long the first frame may take.
const FIRST_FRAME: Duration = Duration::from_secs(10);

/// Most reports of one stream that are worked on at once; further frames wait, and with them the worker.
pub(super) const REPORTS_MAX: usize = 1_024;

/// Most answers to reports in one frame: about 300 bytes each.
const RESULTS_MAX: usize = 1_000;

/// The response of a stream.
pub(super) type Frames = Pin<Box<dyn Stream<Item = Result<StreamTasksResponse, Status>> + Send>>;

/// What all streams of a server share.
#[derive(Clone)]
pub(crate) struct Streams {
    /// Moves the age of each stream.
    pub(crate) entropy: Arc<dyn Entropy>,
}

impl Streams {
    /// Answers at once; the first frame is read, and judged, by the stream itself: a client may well wait for the
    /// answer's headers before it sends anything.
    pub(super) fn open(&self, engine: Engine, calls: Calls, inbound: Streaming<StreamTasksRequest>) -> Frames {
        let age = moved(AGE, &*self.entropy);
        let start = Phase::Starting(Box::new(Start { engine, calls, inbound, age }));
        Box::pin(stream::unfold(start, |phase| async move {
            let mut writer = match phase {
                Phase::Starting(start) => {
                    let calls = start.calls.clone();
                    match start.open().await {
                        Ok(writer) => Box::new(writer),
                        Err(refusal) => return Some((Err(calls.refuse("StreamTasks", &refusal)), Phase::Ended)),
                    }
                }
                Phase::Open(writer) => writer,
                Phase::Ended => return None,
            };
            match writer.frame().await? {
                Ok(frame) => Some((Ok(frame), Phase::Open(writer))),
                Err(status) => Some((Err(status), Phase::Ended)),
            }
        }))
    }
}

/// Where a stream is in its life.
enum Phase {
    Starting(Box<Start>),
    Open(Box<Writer>),
    Ended,
}

/// A stream whose first frame has not come.
struct Start {
    engine: Engine,
    calls: Calls,
    inbound: Streaming<StreamTasksRequest>,
    age: Duration,
}

impl Start {
    async fn open(self) -> Result<Writer, Refusal> {
        let Self { engine, calls, mut inbound, age } = self;
        let first = tokio::time::timeout(FIRST_FRAME, inbound.message()).await;
        let Ok(Ok(Some(first))) = first else {
            return Err(Invalid::field("session_id", "is required: the first frame names the session").into());
        };
        let session = super::parse::session(&first.session_id)?;
        let outlet = engine.open_stream(session).await?;
        let stop = CancellationToken::new();
        let (sender, notes) = mpsc::channel(REPORTS_MAX);
        let reader = reader::Reader {
            engine: engine.clone(),
            calls: calls.clone(),
            session,
            granter: outlet.granter(),
            notes: sender,
        };
        calls.spawn(reader.run(first, inbound, stop.clone()));
        Ok(Writer {
            engine,
            outlet: Some(outlet),
            notes,
            reading: stop.drop_guard(),
            age: Box::pin(clock::sleep(age)),
            _present: telemetry::Present::new(telemetry::TASK_STREAMS),
        })
    }
}

/// The side that sends.
struct Writer {
    engine: Engine,
    /// Where tasks come from; none once the stream is ending.
    outlet: Option<Outlet>,
    notes: mpsc::Receiver<Note>,
    /// Stops the reader, also when the call is gone.
    reading: DropGuard,
    age: Pin<Box<dyn Future<Output = ()> + Send>>,
    _present: telemetry::Present,
}

impl Writer {
    /// The next frame, once there is something to say; nothing at the end.
    async fn frame(&mut self) -> Option<Result<StreamTasksResponse, Status>> {
        let mut frame = Frame::default();
        while frame.is_empty() {
            tokio::select! {
                // Without a note the reader and all that it began have ended.
                note = self.notes.recv() => {
                    if let Err(status) = frame.add(note?) {
                        return Some(Err(status));
                    }
                }
                tasks = next_tasks(&mut self.outlet) => match tasks {
                    Some(tasks) => frame.add_tasks(&tasks),
                    None => {
                        self.finish();
                        frame.message.draining = self.engine.is_draining();
                    }
                },
                () = &mut self.age, if self.outlet.is_some() => self.finish(),
            }
        }
        Some(self.fill(&mut frame).map(|()| frame.message))
    }

    /// Takes no more tasks and reads no more frames. What was read is still answered.
    fn finish(&mut self) {
        self.outlet = None;
        self.reading.token().cancel();
    }

    /// Adds whatever is ready as well.
    fn fill(&mut self, frame: &mut Frame) -> Result<(), Status> {
        while frame.message.results.len() < RESULTS_MAX
            && let Ok(note) = self.notes.try_recv()
        {
            frame.add(note)?;
        }
        let Some(outlet) = &mut self.outlet else { return Ok(()) };
        if !frame.message.results.is_empty() {
            outlet.touch();
        }
        // The engine gives as many tasks at once as one message has room for, so a second helping would be too much.
        // That there are no more for ever is heard again by the next frame.
        if frame.message.tasks.is_empty()
            && let Some(Some(tasks)) = outlet.next().now_or_never()
        {
            frame.add_tasks(&tasks);
        }
        Ok(())
    }
}

/// The next tasks; waits for ever where no more are taken.
async fn next_tasks(outlet: &mut Option<Outlet>) -> Option<Vec<engine::Task>> {
    match outlet {
        Some(outlet) => outlet.next().await,
        None => std::future::pending().await,
    }
}

/// A frame that is being filled.
#[derive(Default)]
struct Frame {
    message: StreamTasksResponse,
}

impl Frame {
    fn is_empty(&self) -> bool {
        let StreamTasksResponse { tasks, results, heartbeat, draining } = &self.message;
        tasks.is_empty() && results.is_empty() && heartbeat.is_none() && !draining
    }

    fn add_tasks(&mut self, tasks: &[engine::Task]) {
        self.message.tasks.extend(tasks.iter().map(render::task));
    }

    fn add(&mut self, note: Note) -> Result<(), Status> {
        match note {
            Note::Result(result) => self.message.results.push(result),
            // The newest answer counts: it names all tokens to stop, as every answer does.
            Note::Heartbeat(answer) => self.message.heartbeat = Some(answer),
            Note::Fatal(status) => return Err(status),
        }
        Ok(())
    }
}

//! Shows what happened in an execution, and goes on as it happens: `history`.

use super::{
    client::{Backoff, Connection, Deadline, call},
    error::Error,
    event,
    output::{Output, Tone},
    table::{Cell, Table},
};
use crate::proto::{
    admin::{ListEventsRequest, WatchEventsRequest, admin_service_client::AdminServiceClient},
    workflow::Event,
};
use tonic::transport::Channel;

/// Shows the events of an execution, the oldest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "With -o json the events are one array; with --follow one line each, as they happen.")]
pub(super) struct History {
    /// Id of the execution
    id: String,
    /// Uid that it must have, for ids that are used again
    #[arg(long, default_value = "", hide_default_value = true)]
    uid: String,
    /// Goes on with new events until the execution is closed, through restarts of the server
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    connection: Connection,
}

impl History {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let mut client = self.connection.admin();
        if self.follow {
            return self.follow(&mut client, output).await;
        }
        let events = self.read(&mut client).await?;
        if output.is_json() {
            return output.json_array(&events);
        }
        let mut table = Table::with_headers(&["NUMBER", "TIME", "EVENT", "DETAIL"]);
        for event in &events {
            let (name, tone, detail) = event::describe(event);
            let time = output.time(event.time.as_ref());
            table.row([event.number.to_string().into(), time.into(), Cell::toned(tone, name), detail.into()]);
        }
        output.table(&table)
    }

    async fn read(&self, client: &mut AdminServiceClient<Channel>) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        let mut page_token = String::new();
        loop {
            let request =
                ListEventsRequest { id: self.id.clone(), uid: self.uid.clone(), page_size: 1_000, page_token };
            let page = client.list_events(call(request)).await?.into_inner();
            events.extend(page.events);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(events);
            }
        }
    }

    /// Prints events as they come. A stream that breaks is taken up after the last event that was printed.
    async fn follow(&self, client: &mut AdminServiceClient<Channel>, output: Output) -> Result<(), Error> {
        let forever = Deadline::after(None);
        let mut backoff = Backoff::new();
        let mut after_number = 0;
        loop {
            let status = match self.stream(client, &mut after_number, output).await? {
                None => return Ok(()),
                Some(status) => status,
            };
            // Only a server that was there can be away: a first call that fails is the user's to know.
            if after_number == 0 {
                return Err(status.into());
            }
            backoff.pause(status, &forever).await?;
        }
    }

    /// One stream, from `after_number` on, which it moves. The status that broke it, or none after the last event.
    async fn stream(
        &self,
        client: &mut AdminServiceClient<Channel>,
        after_number: &mut i64,
        output: Output,
    ) -> Result<Option<tonic::Status>, Error> {
        let request = WatchEventsRequest { id: self.id.clone(), uid: self.uid.clone(), after_number: *after_number };
        let mut stream = match client.watch_events(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => return Ok(Some(status)),
        };
        loop {
            match stream.message().await {
                Ok(Some(response)) => {
                    let event = response.event.unwrap_or_default();
                    print(&event, output)?;
                    *after_number = event.number;
                }
                Ok(None) => return Ok(None),
                Err(status) => return Ok(Some(status)),
            }
        }
    }
}

fn print(event: &Event, output: Output) -> Result<(), Error> {
    if output.is_json() {
        return output.json_line(event);
    }
    let (name, tone, detail) = event::describe(event);
    let number = output.paint(Tone::Faint, &format!("{:>6}", event.number));
    // "0s ago" would tell nothing about an event that is printed as it happens.
    let time = event.time.map(|time| time.to_string()).unwrap_or_default();
    let name = output.paint(tone, &format!("{name:<20}"));
    output.line(format!("{number}  {time:<27}  {name}  {detail}").trim_end())
}

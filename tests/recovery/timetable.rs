//! Schedules beside the load of a run: after everything, each of their slots has started one execution, and the ledger knows
//! them all.

use crate::{connect, oracle};
use orbit::proto::{
    admin::{DeployDefinitionRequest, deploy_definition_request::Content},
    schedule::{
        CreateScheduleRequest, GetScheduleRequest, IntervalRule, ListSlotsRequest, PauseScheduleRequest,
        SchedulePolicies, ScheduleSpec, Slot, StartTemplate, schedule::State, schedule_policies::Overlap,
        schedule_service_client::ScheduleServiceClient, slot::Outcome,
    },
};
use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

/// What they start: it ends at once and needs no worker.
const TICK: &str = "name: tick\nversion: 1.0.0\nsteps: [{id: now, compute: \"${ input }\"}]\n";

/// One fires every second, the other every minute.
const SCHEDULES: [(&str, i64); 2] = [("every-second", 1), ("every-minute", 60)];

/// How often a call is made whose server is not there.
const TRIES: usize = 200;

type Client = ScheduleServiceClient<connect::Route>;

/// The schedules of a run.
pub(crate) struct Timetable {
    client: Client,
}

impl Timetable {
    /// Makes the schedules.
    pub(crate) async fn begin(addresses: &[SocketAddr]) -> Self {
        let content = Some(Content::Source(TICK.to_owned()));
        let deploy = DeployDefinitionRequest { content, ..Default::default() };
        connect::admin_of(addresses).deploy_definition(deploy).await.unwrap();
        let mut client = ScheduleServiceClient::new(connect::Route::to(addresses));
        for (id, seconds) in SCHEDULES {
            let every = prost_types::Duration { seconds, nanos: 0 };
            let request = CreateScheduleRequest {
                id: id.to_owned(),
                spec: Some(ScheduleSpec {
                    intervals: vec![IntervalRule { every: Some(every), offset: None }],
                    ..Default::default()
                }),
                start: Some(StartTemplate { workflow: "tick".to_owned(), ..Default::default() }),
                policies: Some(SchedulePolicies { overlap: Overlap::Allow.into(), ..Default::default() }),
                request_id: id.to_owned(),
                ..Default::default()
            };
            client.create_schedule(request).await.unwrap();
        }
        Self { client }
    }

    /// Pauses them. From then on nothing of theirs starts.
    pub(crate) async fn pause(&mut self) {
        for (id, _) in SCHEDULES {
            let request = PauseScheduleRequest { id: id.to_owned(), request_id: id.to_owned(), ..Default::default() };
            let mut paused = Err(tonic::Status::unavailable("not asked yet"));
            for _ in 0..TRIES {
                paused = self.client.pause_schedule(request.clone()).await;
                if paused.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let schedule = paused.unwrap().into_inner().schedule.unwrap();
            assert_eq!(schedule.state(), State::Paused, "{schedule:?}");
        }
    }

    /// Compares the ledger with the times and with the executions; answers with how many slots there were.
    pub(crate) async fn check(&mut self, admin: &mut connect::Admin) -> usize {
        let mut uids = BTreeSet::new();
        let mut count = 0;
        for (id, seconds) in SCHEDULES {
            let request = GetScheduleRequest { id: id.to_owned(), ..Default::default() };
            let schedule = self.client.get_schedule(request).await.unwrap().into_inner().schedule.unwrap();
            let mut slots = self.slots(id).await;
            slots.reverse();
            for pair in slots.windows(2) {
                let step = pair[1].nominal_time.unwrap().seconds - pair[0].nominal_time.unwrap().seconds;
                assert_eq!(step, seconds, "{id}: a slot is missing, or there twice: {pair:?}");
            }
            if let Some(first) = slots.first() {
                let lead = first.nominal_time.unwrap().seconds - schedule.create_time.unwrap().seconds;
                assert!((0..=seconds).contains(&lead), "{id} began with {first:?}");
            }
            for slot in &slots {
                assert_eq!(slot.outcome(), Outcome::Started, "{slot:?}");
                assert!(uids.insert(slot.execution.clone().unwrap().uid), "{slot:?} has the execution of another");
            }
            assert_eq!(schedule.counts.unwrap().started, i64::try_from(slots.len()).unwrap());
            count += slots.len();
        }
        let started: BTreeSet<String> = oracle::list(admin)
            .await
            .into_iter()
            .filter(|execution| execution.labels.contains_key("orbit.schedule"))
            .map(|execution| execution.uid)
            .collect();
        assert_eq!(started, uids, "the executions are those of the ledger");
        count
    }

    async fn slots(&mut self, id: &str) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListSlotsRequest { id: id.to_owned(), page_size: 1_000, page_token, ..Default::default() };
            let page = self.client.list_slots(request).await.unwrap().into_inner();
            slots.extend(page.slots);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return slots;
            }
        }
    }
}

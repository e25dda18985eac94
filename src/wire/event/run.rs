//! The events that begin something: an execution, a run, a closed execution anew.

use super::DecodeError;
use super::decode::{Decoder, unhex};
use super::encode::{Write, failure_to_proto, render_parent, request_to_proto, signed, signed_number, skip_reason};
use crate::domain::{
    AbandonedChild, AcceptedReport, ChildRequest, Created, RememberedCall, ReopenedStep, RunStart, StepEnd, StepResult,
    UntakenSignal, hex,
};
use crate::proto::workflow::{self as proto, step_result::End};
use crate::wire::time;

pub(super) fn created(created: &Created, write: &mut Write<'_>) -> proto::ExecutionCreated {
    proto::ExecutionCreated {
        id: created.id.to_string(),
        uid: created.uid.to_string(),
        run: signed(created.run),
        workflow: created.workflow.to_string(),
        version: created.version.to_string(),
        definition_hash: hex(&created.definition_hash),
        input: Some(write(&created.input)),
        labels: created.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        expire_time: created.expire_time.map(time::render),
        trace_parent: created.trace_parent.to_string(),
        parent: created.parent.as_ref().map(|parent| proto::Parent { key: parent.key.0, ..render_parent(parent) }),
        depth: signed(created.depth),
        begin_time: created.begin_time.map(time::render),
        results: created.results.iter().map(|result| step_result(result, write)).collect(),
    }
}

fn step_result(result: &StepResult, write: &mut Write<'_>) -> proto::StepResult {
    let end = match &result.end {
        StepEnd::Succeeded(output) => End::Output(write(output)),
        StepEnd::Failed(failure) => End::Failure(failure_to_proto(failure, write)),
        StepEnd::Skipped(reason) => End::Skipped(skip_reason(*reason).into()),
    };
    proto::StepResult { step: result.step.to_string(), end: Some(end) }
}

pub(super) fn started(start: &RunStart, write: &mut Write<'_>) -> proto::RunStarted {
    let signal = |signal: &UntakenSignal, write: &mut Write<'_>| proto::UntakenSignal {
        signal_number: signed_number(signal.number),
        signal: Some(proto::SignalReceived {
            name: signal.name.to_string(),
            payload: Some(write(&signal.payload)),
            expire_time: signal.expire_time.map(time::render),
            sender: Vec::new(),
            handler: signal.handler.as_ref().map(ToString::to_string).unwrap_or_default(),
        }),
    };
    let call = |call: &RememberedCall| proto::RememberedCall {
        request: Some(request_to_proto(call.request)),
        event_number: signed_number(call.number),
        time: Some(time::render(call.time)),
    };
    let report = |report: &AcceptedReport| proto::AcceptedReport {
        unit: report.unit.to_string(),
        delivery: signed(report.delivery),
        report: report.hash.to_vec(),
    };
    proto::RunStarted {
        execution: Some(created(&start.created, write)),
        start_time: Some(time::render(start.start_time)),
        signals: start.signals.iter().map(|untaken| signal(untaken, write)).collect(),
        calls: start.calls.iter().map(call).collect(),
        deliveries: signed(start.deliveries),
        reports: start.reports.iter().map(report).collect(),
        senders: start.senders.iter().map(call).collect(),
        abandoned: start.abandoned.iter().map(|child| abandoned(child, write)).collect(),
    }
}

fn abandoned(
    AbandonedChild { child, has_started, since }: &AbandonedChild,
    write: &mut Write<'_>,
) -> proto::AbandonedChild {
    proto::AbandonedChild {
        id: child.id.to_string(),
        definition_hash: hex(&child.definition_hash),
        input: Some(write(&child.input)),
        run: signed(child.run),
        unit: child.unit.to_string(),
        generation: signed(child.generation),
        attempt: signed(child.attempt),
        depth: signed(child.depth),
        trace_parent: child.trace_parent.to_string(),
        has_started: *has_started,
        abandon_time: since.map(time::render),
    }
}

pub(super) fn reopened(step: &ReopenedStep) -> proto::ReopenedStep {
    proto::ReopenedStep { unit: step.unit.to_string(), items: step.items.iter().map(|item| signed(*item)).collect() }
}

impl Decoder<'_> {
    pub(super) fn created(&self, it: proto::ExecutionCreated) -> Result<Created, DecodeError> {
        Ok(Created {
            id: self.execution_id(&it.id, "id")?,
            uid: self.uid(&it.uid, "uid")?,
            run: self.count(it.run, "run")?,
            workflow: it.workflow.into(),
            version: it.version.into(),
            definition_hash: unhex(&it.definition_hash).ok_or_else(|| self.damaged("definition_hash"))?,
            input: self.payload(it.input, "input")?,
            labels: it.labels.into_iter().collect(),
            expire_time: self.optional_time(it.expire_time, "expire_time")?,
            trace_parent: it.trace_parent.into(),
            parent: it.parent.map(|parent| self.parent(parent)).transpose()?,
            depth: self.count(it.depth, "depth")?,
            begin_time: self.optional_time(it.begin_time, "begin_time")?,
            results: it.results.into_iter().map(|result| self.step_result(result)).collect::<Result<_, _>>()?,
        })
    }

    fn step_result(&self, result: proto::StepResult) -> Result<StepResult, DecodeError> {
        let end = match result.end.ok_or_else(|| self.unknown("end of a step"))? {
            End::Output(output) => StepEnd::Succeeded(self.payload(Some(output), "output")?),
            End::Failure(failure) => StepEnd::Failed(self.failure(Some(failure))?),
            End::Skipped(reason) => StepEnd::Skipped(self.skip_reason(reason)?),
        };
        Ok(StepResult { step: result.step.into(), end })
    }

    pub(super) fn run_started(&self, it: proto::RunStarted) -> Result<RunStart, DecodeError> {
        let signal = |untaken: proto::UntakenSignal| {
            let signal = untaken.signal.ok_or_else(|| self.damaged("signal"))?;
            Ok(UntakenSignal {
                number: self.event_number(untaken.signal_number)?,
                name: signal.name.into(),
                payload: self.payload(signal.payload, "payload")?,
                expire_time: self.optional_time(signal.expire_time, "expire_time")?,
                handler: (!signal.handler.is_empty()).then(|| signal.handler.into()),
            })
        };
        let call = |call: proto::RememberedCall| {
            Ok(RememberedCall {
                request: self.request(call.request.ok_or_else(|| self.damaged("request"))?)?,
                number: self.event_number(call.event_number)?,
                time: self.time(call.time, "time")?,
            })
        };
        let report = |report: proto::AcceptedReport| {
            Ok(AcceptedReport {
                unit: report.unit.into(),
                delivery: self.count(report.delivery, "delivery")?,
                hash: self.bytes(report.report, "report")?,
            })
        };
        Ok(RunStart {
            created: self.created(it.execution.ok_or_else(|| self.damaged("execution"))?)?,
            start_time: self.time(it.start_time, "start_time")?,
            signals: it.signals.into_iter().map(signal).collect::<Result<_, _>>()?,
            calls: it.calls.into_iter().map(call).collect::<Result<_, _>>()?,
            deliveries: self.count(it.deliveries, "deliveries")?,
            reports: it.reports.into_iter().map(report).collect::<Result<_, _>>()?,
            senders: it.senders.into_iter().map(call).collect::<Result<_, _>>()?,
            abandoned: it.abandoned.into_iter().map(|child| self.abandoned(child)).collect::<Result<_, _>>()?,
        })
    }

    fn abandoned(&self, it: proto::AbandonedChild) -> Result<AbandonedChild, DecodeError> {
        let child = ChildRequest {
            id: self.execution_id(&it.id, "id")?,
            definition_hash: unhex(&it.definition_hash).ok_or_else(|| self.damaged("definition_hash"))?,
            input: self.payload(it.input, "input")?,
            run: self.count(it.run, "run")?,
            unit: it.unit.into(),
            generation: self.count(it.generation, "generation")?,
            attempt: self.count(it.attempt, "attempt")?,
            depth: self.count(it.depth, "depth")?,
            trace_parent: it.trace_parent.into(),
        };
        let since = self.optional_time(it.abandon_time, "abandon_time")?;
        Ok(AbandonedChild { child, has_started: it.has_started, since })
    }

    pub(super) fn reopened(&self, step: proto::ReopenedStep) -> Result<ReopenedStep, DecodeError> {
        let items = step.items.into_iter().map(|item| self.count(item, "item")).collect::<Result<_, _>>()?;
        Ok(ReopenedStep { unit: step.unit.into(), items })
    }
}

//! Why an execution does not move.

use super::{Answer, name};
use crate::api::render;
use crate::engine::Engine;
use crate::proto::admin as proto;
use crate::wire::{self, Violations, time};

/// `ExplainExecution`.
pub(super) async fn explain(
    engine: &Engine,
    request: proto::ExplainExecutionRequest,
) -> Answer<proto::ExplainExecutionResponse> {
    let mut violations = Violations::new();
    let name = name(&mut violations, &request.id, &request.uid);
    let explained = engine.explain(&violations.finish(name)?).await?;
    let waits = explained.explanation.waits.iter();
    let explanation = proto::Explanation {
        id: explained.id.to_string(),
        uid: explained.uid.to_string(),
        state: render::state(explained.state).into(),
        last_event_number: i64::try_from(explained.last_number).unwrap_or(i64::MAX),
        expire_time: explained.expire_time.map(time::render),
        now: Some(time::render(explained.now)),
        waits: waits.map(|wait| wire::explanation::render(wait, &explained.id)).collect(),
        more_waits: i32::try_from(explained.explanation.more).unwrap_or(i32::MAX),
    };
    Ok(proto::ExplainExecutionResponse { explanation: Some(explanation) })
}

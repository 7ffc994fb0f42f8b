"""A turn that no model can be made to understand does not keep the conversation from being learned from."""

from __future__ import annotations

from pathlib import Path

from remember_samples import ALEX, claim, learns, opened_async

from recollect.model.job import JobState
from recollect.testing.scripted_llm import ScriptedLLM

POISON = "My name is Poison Ivy."


async def test_what_cannot_be_understood_is_passed_over_and_can_be_replayed(tmp_path: Path, llm: ScriptedLLM) -> None:
    llm.when(lambda asking: "Poison" in asking.text).reply("not JSON at all")
    learns(llm, "cello", claim("User plays the cello"))
    async with opened_async(tmp_path, llm, job_tries=1, learn_overlap=0) as memory:
        place = {"user_id": ALEX, "session_id": "s"}
        dead = (await memory.remember(POISON, **place, wait=60.0)).job
        assert dead is not None
        assert dead.state is JobState.DEAD
        later = (await memory.remember("I play the cello.", **place, wait=60.0)).job
        assert later is not None
        assert later.state is JobState.DONE
        existing = [record.content for record in await memory.get_all(user_id=ALEX)]
        # The selector has learned what it can from the one that was passed over.
        assert existing == ["User plays the cello", "My name is Poison Ivy"]
        llm._pending.clear()
        learns(llm, "Poison", claim("User's name is Poison Ivy", key="name", value="Poison Ivy", category="identity"))
        await memory.replay_jobs([dead.id], user_id=ALEX)
        await memory.work()
        job = await memory.job(dead.id, user_id=ALEX)
        assert (job.state, job.result and job.result["by"]) == (JobState.DONE, "llm")
        [session] = await memory.sessions(user_id=ALEX)
        assert "passed_over" not in session.metadata

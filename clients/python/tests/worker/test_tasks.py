from __future__ import annotations

from fake_server import FakeServer

from longhaul.worker import App, Context


def test_one_step_task_finishes(server: FakeServer, serve):
    app = App("t")

    @app.task
    async def double(ctx: Context, n: int) -> int:
        async def twice(n: int) -> int:
            return 2 * n

        return await ctx.step("twice", twice, n)

    serve(app)
    execution = server.submit("t.double", {"n": 4})
    assert server.finished(execution) == 8
    assert [step["name"] for step in execution.steps] == ["twice"]
    assert ("POST", "/v1/workers/w1/writes") not in server.requests

"""Anthropic's Python SDK against Longhaul."""

import json
import uuid

import anthropic
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from pydantic import BaseModel
from suite import ARGS, asked, check, main, raises, same

CLIENT = Anthropic(base_url=ARGS.url, api_key=ARGS.key, timeout=60)
ONCE = CLIENT.with_options(max_retries=0)
BOTH = (ARGS.agent, ARGS.model)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "Tells the weather.", "input_schema": SCHEMA}
TIME = {"name": "get_time", "description": "Tells the time.", "input_schema": SCHEMA}
CITY = {"city": "Oslo"}


class City(BaseModel):
    name: str
    people: int


def says(text):
    return {"max_tokens": 500, "messages": [{"role": "user", "content": text}]}


@check
def models_are_listed_and_retrieved():
    models = list(CLIENT.models.list())
    assert ARGS.agent in [model.id for model in models], models
    for name in (ARGS.agent, ARGS.model):
        model = CLIENT.models.retrieve(name)
        same((model.id, model.type), (name, "model"))
        assert model.display_name and model.created_at.year >= 1970
    for name in ("agent:nothing", f"{ARGS.agent}@99"):
        raises(anthropic.NotFoundError, ONCE.models.retrieve, name)


@check
def message_is_created():
    for model in BOTH:
        made = CLIENT.messages.create(model=model, system="Be brief.", metadata={"user_id": "u"}, **says("Hello."))
        same((made.type, made.role, made.model, made.stop_reason), ("message", "assistant", model, "end_turn"))
        same([(block.type, block.text) for block in made.content], [("text", "You said: Hello.")])
        assert made.id.startswith("msg_") and made.usage.input_tokens > 0 and made.usage.output_tokens > 0
    cut = CLIENT.messages.create(model=ARGS.model, **says("[cut] x"))
    same(cut.stop_reason, "max_tokens")


@check
def message_takes_blocks_of_every_kind():
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    messages = [
        {"role": "user", "content": "Before."},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "get_weather", "input": CITY},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "Cold."}]},
                {"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": pixel}},
            ],
        },
    ]
    for model in BOTH:
        system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
        made = CLIENT.messages.create(model=model, system=system, max_tokens=500, messages=messages)
        assert made.content[0].text.startswith("You said: Look."), made.content


@check
def message_streams():
    for model in BOTH:
        wanted = " ".join(f"word{at}" for at in range(30))
        kinds = [event.type for event in CLIENT.messages.create(model=model, stream=True, **says("[words 30]"))]
        same((kinds[0], kinds[-2:]), ("message_start", ["message_delta", "message_stop"]))
        same((kinds.count("content_block_start"), kinds.count("content_block_stop")), (1, 1))
        with CLIENT.messages.stream(model=model, **says("[words 30]")) as stream:
            same("".join(stream.text_stream), wanted)
            final = stream.get_final_message()
            same((final.content[0].text, final.stop_reason), (wanted, "end_turn"))
            assert final.usage.output_tokens > 10


@check
def tools_are_run_by_the_client():
    for model in BOTH:
        request = {"model": model, "tools": [WEATHER, TIME], "max_tokens": 500}
        messages = says("Both? [both]")["messages"]
        made = CLIENT.messages.create(messages=messages, **request)
        calls = [block for block in made.content if block.type == "tool_use"]
        same(
            (made.stop_reason, [(call.name, call.input) for call in calls]),
            ("tool_use", [("get_time", CITY), ("get_weather", CITY)]),
        )
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": call.name} for call in calls]
        messages += [{"role": "assistant", "content": made.content}, {"role": "user", "content": results}]
        last = CLIENT.messages.create(messages=messages, **request)
        same((last.stop_reason, last.content[0].text), ("end_turn", "Results: get_time; get_weather"))
        with CLIENT.messages.stream(messages=messages[:1], **request) as stream:
            for _ in stream:
                pass
            calls = [block for block in stream.get_final_message().content if block.type == "tool_use"]
        same([(call.name, call.input) for call in calls], [("get_time", CITY), ("get_weather", CITY)])
        none = CLIENT.messages.create(messages=messages[:1], tool_choice={"type": "none"}, **request)
        same([block.type for block in none.content], ["text"])


@check
def failed_result_is_told():
    for model in BOTH:
        request = {"model": model, "tools": [WEATHER], "max_tokens": 500}
        messages = says("Weather?")["messages"]
        made = CLIENT.messages.create(messages=messages, **request)
        call = next(block for block in made.content if block.type == "tool_use")
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "No network.", "is_error": True}
        messages += [{"role": "assistant", "content": made.content}, {"role": "user", "content": [result]}]
        assert "No network." in CLIENT.messages.create(messages=messages, **request).content[0].text


@check
def tool_runner_runs():
    ran = []

    @beta_tool
    def look_up(city: str) -> str:
        """Looks a city up.

        Args:
            city: Its name.
        """
        ran.append(city)
        return f"{city} is fine."

    for model in BOTH:
        for stream in (False, True):
            ran.clear()
            runner = CLIENT.beta.messages.tool_runner(model=model, tools=[look_up], stream=stream, **says("Look up."))
            same(runner.until_done().content[0].text, "Results: Oslo is fine.")
            same(ran, ["Oslo"])


@check
def message_is_parsed_by_a_schema():
    for model in BOTH:
        same(
            CLIENT.messages.parse(model=model, output_format=City, **says("City?")).parsed_output,
            City(name="Oslo", people=7),
        )
        with CLIENT.messages.stream(model=model, output_format=City, **says("City?")) as stream:
            same(stream.get_final_message().parsed_output, City(name="Oslo", people=7))


@check
def tokens_are_counted():
    for model in BOTH:
        messages = says("Some words to count.")["messages"]
        assert CLIENT.messages.count_tokens(model=model, messages=messages, tools=[WEATHER]).input_tokens > 3
        assert CLIENT.beta.messages.count_tokens(model=model, messages=messages).input_tokens > 3


@check
def errors_have_their_types():
    wrong = Anthropic(base_url=ARGS.url, api_key="lh_wrong", max_retries=0)
    for stream in (False, True):
        raises(anthropic.AuthenticationError, wrong.messages.create, model=ARGS.agent, stream=stream, **says("x"))
        for model in ("agent:nothing", f"{ARGS.agent}@99", "nothing\n"):
            error = raises(anthropic.NotFoundError, ONCE.messages.create, model=model, stream=stream, **says("x"))
            same((error.body["type"], error.body["error"]["type"]), ("error", "not_found_error"))
            same((error.body["request_id"], error.response.headers["x-should-retry"]), (error.request_id, "false"))
            assert error.request_id
    raises(anthropic.BadRequestError, ONCE.messages.create, model=ARGS.agent, max_tokens=5, messages=[])
    raises(
        anthropic.BadRequestError,
        ONCE.messages.create,
        model=ARGS.agent,
        max_tokens=5,
        messages=[{"role": "x", "content": "y"}],
    )
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    error = raises(anthropic.BadRequestError, ONCE.messages.create, model=ARGS.agent, tools=tools, **says("x"))
    assert "tools" in str(error), error
    raises(anthropic.NotFoundError, ONCE.post, "/v1/nothing", cast_to=object)


@check
def failure_of_the_model_is_raised():
    for stream in (False, True):
        error = None
        try:
            answer = ONCE.messages.create(model=ARGS.model, stream=stream, **says(f"[fail 400] {uuid.uuid4()}"))
            list(answer)
        except anthropic.APIStatusError as caught:
            error = caught
        assert error is not None and error.body["error"]["message"], error


@check
def failure_that_heals_is_retried_by_the_fleet():
    text = f"[once 503] {uuid.uuid4()}"
    same(ONCE.messages.create(model=ARGS.model, **says(text)).content[0].text, f"You said: {text}")
    same(asked(text), 2)


@check
def run_pays_once():
    run, text = f"doors-{uuid.uuid4()}", f"Paid once {uuid.uuid4()}"

    def answer(attempt):
        client = CLIENT.with_options(default_headers={"Longhaul-Run": run, "Longhaul-Attempt": attempt})
        return json.loads(client.messages.create(model=ARGS.model, **says(text)).model_dump_json())

    first = answer("1")
    same(answer("2"), first)
    same(asked(text), 1)
    answer("2")
    same(asked(text), 2)
    prefixed = Anthropic(base_url=f"{ARGS.url}/runs/{run}/attempts/3", api_key=ARGS.key)
    prefixed.messages.create(model=ARGS.model, **says(text))
    same(asked(text), 2)


@check
async def async_client_does_the_same():
    async with AsyncAnthropic(base_url=ARGS.url, api_key=ARGS.key, timeout=60) as client:
        for model in BOTH:
            made = await client.messages.create(model=model, **says("Hello."))
            same(made.content[0].text, "You said: Hello.")
            async with client.messages.stream(model=model, **says("[words 9]")) as stream:
                same([text async for text in stream.text_stream][-1].split()[-1], "word8")
            counted = await client.messages.count_tokens(model=model, messages=says("x")["messages"])
            assert counted.input_tokens > 0


if __name__ == "__main__":
    main()

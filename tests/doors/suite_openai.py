"""OpenAI's Python SDK against Longhaul."""

import json
import socket
import threading
import uuid
from urllib.parse import urlsplit

import httpx2
import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from suite import ARGS, asked, check, main, raises, same

CLIENT = OpenAI(base_url=f"{ARGS.url}/v1", api_key=ARGS.key, timeout=60)
ONCE = CLIENT.with_options(max_retries=0)
BOTH = (ARGS.agent, ARGS.model)
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
TIME = {**WEATHER, "name": "get_time", "description": "Tells the time."}
# The arguments that the model gives.
CITY = {"city": "Oslo"}
ENDS = ("response.completed", "response.failed", "response.incomplete", "response.cancelled")


class City(BaseModel):
    name: str
    people: int


def chat_tool(tool):
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def dump(model):
    return model.model_dump(mode="json", warnings="error")


def raw(path, key=None):
    """The bytes of a GET."""
    answer = httpx2.get(f"{ARGS.url}/v1{path}", headers={"authorization": f"Bearer {key or ARGS.key}"}, timeout=60)
    same(answer.status_code, 200)
    return answer.content


def sound(events):
    """Asserts what every stream of a response keeps to, and returns the final response."""
    same([event.sequence_number for event in events], list(range(len(events))))
    assert events[0].type in ("response.created", "response.queued"), events[0].type
    same([event.type for event in events if event.type in ENDS], [events[-1].type])
    opened = {}
    for event in events:
        if event.type == "response.output_item.added":
            assert event.output_index not in opened, event
            same(event.output_index, len(opened))
            opened[event.output_index] = event.item.id
        if event.type == "response.output_item.done":
            same(event.item.id, opened[event.output_index])
    response = events[-1].response
    same([item.id for item in response.output], list(opened.values()))
    for item in response.output:
        texts = [
            event.delta for event in events if event.type == "response.output_text.delta" and event.item_id == item.id
        ]
        if item.type == "message":
            same("".join(texts), "".join(part.text for part in item.content))
    return response


# Models


@check
def models_are_listed_and_retrieved():
    ids = [model.id for model in CLIENT.models.list()]
    assert ARGS.agent in ids, ids
    for name in (ARGS.agent, f"{ARGS.agent}@1", ARGS.model):
        model = CLIENT.models.retrieve(name)
        same((model.id, model.object), (name, "model"))
        assert isinstance(model.created, int) and model.owned_by
    for name in ("agent:nothing", f"{ARGS.agent}@99", "definition:nothing"):
        same(raises(openai.NotFoundError, ONCE.models.retrieve, name).code, "model_not_found")


# Responses


@check
def response_is_created_read_and_deleted():
    for model in BOTH:
        made = CLIENT.responses.create(
            model=model, input="Hello.", instructions="Be brief.", metadata={"k": "v"}, temperature=0.5, top_p=0.9
        )
        assert made._request_id
        same((made.status, made.output_text, made.metadata), ("completed", "You said: Hello.", {"k": "v"}))
        same((made.temperature, made.top_p, made.instructions), (0.5, 0.9, "Be brief."))
        assert made.usage.input_tokens > 0 and made.usage.total_tokens > made.usage.input_tokens
        same(dump(CLIENT.responses.retrieve(made.id)), dump(made))
        items = list(CLIENT.responses.input_items.list(made.id))
        same([(item.role, item.content[0].text) for item in items], [("user", "Hello.")])
        CLIENT.responses.delete(made.id)
        same(raises(openai.NotFoundError, ONCE.responses.retrieve, made.id).status_code, 404)
        raises(openai.NotFoundError, ONCE.responses.delete, made.id)


@check
def response_takes_items_of_every_kind():
    pixel = (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
        "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Before."},
        {"role": "assistant", "content": "Yes?", "type": "message"},
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "Cold."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look."},
                {"type": "input_image", "image_url": pixel, "detail": "auto"},
            ],
        },
    ]
    for model in BOTH:
        made = CLIENT.responses.create(model=model, input=items)
        assert made.output_text.startswith("You said: Look."), made.output_text
        pages = CLIENT.responses.input_items.list(made.id, limit=2, order="asc")
        listed = list(pages)
        same([item.type for item in listed], ["message"] * 3 + ["function_call", "function_call_output", "message"])
        same(len({item.id for item in listed}), 6)
        newest = CLIENT.responses.input_items.list(made.id, limit=1).data[0]
        same(newest.id, listed[-1].id)


@check
def response_streams_through_create_and_the_helper():
    for model in BOTH:
        events = list(CLIENT.responses.create(model=model, input="[words 40]", stream=True))
        response = sound(events)
        same(response.output_text, " ".join(f"word{at}" for at in range(40)))
        same(dump(CLIENT.responses.retrieve(response.id)), dump(response))
        with CLIENT.responses.stream(model=model, input="[words 12]") as stream:
            for _ in stream:
                pass
            same(stream.get_final_response().output_text, " ".join(f"word{at}" for at in range(12)))


@check
def response_is_parsed_by_a_schema():
    for model in BOTH:
        parsed = CLIENT.responses.parse(model=model, input="Which city?", text_format=City)
        same(parsed.output_parsed, City(name="Oslo", people=7))
        with CLIENT.responses.stream(model=model, input="Which city?", text_format=City) as stream:
            for _ in stream:
                pass
            same(stream.get_final_response().output_parsed, City(name="Oslo", people=7))


def answered(model, response):
    """The response after the results of the functions that this one asks for."""
    calls = [item for item in response.output if item.type == "function_call"]
    results = [
        {"type": "function_call_output", "call_id": call.call_id, "output": f"{call.name}: fine"} for call in calls
    ]
    return calls, CLIENT.responses.create(
        model=model, previous_response_id=response.id, input=results, tools=[WEATHER, TIME]
    )


@check
def functions_are_run_by_the_client():
    for model in BOTH:
        for text, wanted in (("Time?", ["get_time"]), ("Both? [both]", ["get_time", "get_weather"])):
            made = CLIENT.responses.create(model=model, input=text, tools=[WEATHER, TIME])
            same(made.status, "completed")
            calls, last = answered(model, made)
            same(
                [(call.name, json.loads(call.arguments), call.status) for call in calls],
                [(name, CITY, "completed") for name in wanted],
            )
            same(last.output_text, "Results: " + "; ".join(f"{name}: fine" for name in wanted))
            same(last.previous_response_id, made.id)


@check
def functions_stream_and_are_parsed():
    for model in BOTH:
        events = list(CLIENT.responses.create(model=model, input="Weather?", tools=[WEATHER], stream=True))
        response = sound(events)
        call = next(item for item in response.output if item.type == "function_call")
        deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        same("".join(deltas), call.arguments)
        parsed = CLIENT.responses.parse(
            model=model,
            input="Weather?",
            tools=[openai.pydantic_function_tool(City)["function"] | {"type": "function"}],
        )
        call = next(item for item in parsed.output if item.type == "function_call")
        same(
            call.parsed_arguments,
            {"name": "Oslo", "people": 7} if isinstance(call.parsed_arguments, dict) else City(name="Oslo", people=7),
        )


@check
def whole_conversation_may_be_sent_again():
    for model in BOTH:
        made = CLIENT.responses.create(model=model, input="Weather?", tools=[WEATHER])
        items = [{"role": "user", "content": "Weather?"}, *[item.model_dump(exclude_none=True) for item in made.output]]
        calls = [item for item in made.output if item.type == "function_call"]
        items += [{"type": "function_call_output", "call_id": calls[0].call_id, "output": "Cold."}]
        last = CLIENT.responses.create(model=model, input=items, tools=[WEATHER])
        same(last.output_text, "Results: Cold.")


@check
def tool_choice_binds():
    for model in BOTH:
        none = CLIENT.responses.create(model=model, input="Weather?", tools=[WEATHER], tool_choice="none")
        same([item.type for item in none.output], ["message"])
        named = CLIENT.responses.create(
            model=model, input="Time?", tools=[WEATHER, TIME], tool_choice={"type": "function", "name": "get_time"}
        )
        same([item.name for item in named.output if item.type == "function_call"], ["get_time"])


@check
def chain_remembers():
    for model in BOTH:
        first = CLIENT.responses.create(model=model, input="One.")
        second = CLIENT.responses.create(model=model, input="Two.", previous_response_id=first.id)
        branch = CLIENT.responses.create(model=model, input="Three.", previous_response_id=first.id)
        same((second.output_text, branch.output_text), ("You said: Two.", "You said: Three."))
        assert second.usage.input_tokens > first.usage.input_tokens
    error = raises(
        openai.BadRequestError, ONCE.responses.create, model=model, input="x", previous_response_id="resp_" + "0" * 32
    )
    same((error.code, error.param), ("previous_response_not_found", "previous_response_id"))


@check
def answer_that_was_cut_is_incomplete():
    made = CLIENT.responses.create(model=ARGS.model, input="[words 3] [cut]", max_output_tokens=50)
    same((made.status, made.incomplete_details.reason), ("incomplete", "max_output_tokens"))
    assert made.output_text


@check
def background_is_queued_and_polled():
    for model in BOTH:
        made = CLIENT.responses.create(model=model, input="[wait 0.5] Hello.", background=True)
        same((made.status, made.background), ("queued", True))
        polled = made
        while polled.status in ("queued", "in_progress"):
            polled = CLIENT.responses.retrieve(made.id)
        same((polled.status, polled.output_text), ("completed", "You said: [wait 0.5] Hello."))
        first, again = raw(f"/responses/{made.id}"), raw(f"/responses/{made.id}")
        same(first, again)


def cut_after(count, text, model, **more):
    """Reads that many events of a background stream, and breaks the connection."""
    events, stream = [], CLIENT.responses.create(model=model, input=text, background=True, stream=True, **more)
    for event in stream:
        events.append(event)
        if len(events) == count:
            break
    stream.close()
    return events


@check
def stream_resumes_after_a_cut_at_every_event():
    for model, text, more in (
        (ARGS.agent, "[words 15] [slow 0.1]", {}),
        (ARGS.model, "[words 15] [slow 0.1]", {}),
        (ARGS.agent, "Weather?", {"tools": [WEATHER]}),
    ):
        whole = cut_after(0, text, model, **more)
        sound(whole)
        for count in range(1, len(whole)):
            events = cut_after(count, text, model, **more)
            same(len(events), count)
            id, last = events[0].response.id, events[-1].sequence_number
            events += CLIENT.responses.retrieve(id, stream=True, starting_after=last)
            response = sound(events)
            same([item.type for item in response.output], [item.type for item in whole[-1].response.output])


@check
def resumed_bytes_are_the_same_after_every_event():
    made = CLIENT.responses.create(model=ARGS.agent, input="[words 15]", background=True)
    path = f"/responses/{made.id}?stream=true"
    whole = raw(path)
    frames = [frame + b"\n\n" for frame in whole.split(b"\n\n") if frame]
    same(frames[-1], b"data: [DONE]\n\n")
    for after in range(len(frames) - 1):
        same(raw(f"{path}&starting_after={after}"), b"".join(frames[after + 1 :]))
    same(raw(f"{path}&starting_after=100000"), b"data: [DONE]\n\n")


@check
def background_is_cancelled_once():
    for model in BOTH:
        made = CLIENT.responses.create(model=model, input="[slow 20] [words 20]", background=True)
        for _ in range(2):
            same(CLIENT.responses.cancel(made.id).status, "cancelled")
        polled = CLIENT.responses.retrieve(made.id)
        while polled.status in ("queued", "in_progress"):
            polled = CLIENT.responses.retrieve(made.id)
        same(polled.status, "cancelled")
        events = list(CLIENT.responses.retrieve(made.id, stream=True))
        same([event.sequence_number for event in events], list(range(len(events))))
    made = CLIENT.responses.create(model=ARGS.agent, input="Hello.")
    raises(openai.BadRequestError, ONCE.responses.cancel, made.id)
    raises(openai.NotFoundError, ONCE.responses.cancel, "resp_" + "0" * 32)
    raises(openai.BadRequestError, ONCE.responses.create, model=ARGS.agent, input="x", background=True, store=False)


@check
def response_that_is_not_stored_is_not_read():
    made = CLIENT.responses.create(model=ARGS.agent, input="Hello.", store=False)
    same((made.status, made.store), ("completed", False))
    raises(openai.NotFoundError, ONCE.responses.retrieve, made.id)


@check
def tokens_are_counted():
    for model in BOTH:
        counted = CLIENT.responses.input_tokens.count(model=model, input="Some words to count.", tools=[WEATHER])
        same(counted.object, "response.input_tokens")
        assert counted.input_tokens > 3


@check
def conversation_is_compacted():
    for model in BOTH:
        compacted = CLIENT.responses.compact(model=model, input=[{"role": "user", "content": "A long talk."}])
        same(compacted.object, "response.compaction")
        items = [item for item in compacted.output if item.type == "compaction"]
        assert items and items[0].encrypted_content
        output = [item.model_dump(exclude_none=True) for item in compacted.output]
        more = CLIENT.responses.create(model=model, input=[*output, {"role": "user", "content": "Go on."}])
        same(more.output_text, "You said: Go on.")
    same(raises(openai.NotFoundError, ONCE.responses.compact, model="agent:nothing", input="x").code, "model_not_found")


# Errors and retries


@check
def errors_have_their_types():
    wrong = OpenAI(base_url=f"{ARGS.url}/v1", api_key="lh_wrong", max_retries=0)
    for call in (
        lambda client, model: client.responses.create(model=model, input="x"),
        lambda client, model: client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}]),
        lambda client, model: client.responses.create(model=model, input="x", stream=True),
    ):
        raises(openai.AuthenticationError, call, wrong, ARGS.agent)
        for model in ("agent:nothing", f"{ARGS.agent}@99", "nothing\n"):
            error = raises(openai.NotFoundError, call, ONCE, model)
            same(
                (error.code, error.param, error.response.headers["x-should-retry"]),
                ("model_not_found", "model", "false"),
            )
            assert error.request_id and error.body["message"] and error.body["type"]
    raises(openai.BadRequestError, ONCE.responses.create, model=ARGS.agent, input=[{"type": "nothing"}])
    error = raises(
        openai.BadRequestError, ONCE.responses.create, model=ARGS.agent, input="x", tools=[{"type": "web_search"}]
    )
    same((error.code, error.param), ("unsupported_parameter", "tools[0].type"))
    for member in ({"n": 2}, {"logprobs": True}, {"functions": []}, {"modalities": ["text", "audio"]}):
        messages = [{"role": "user", "content": "x"}]
        error = raises(
            openai.BadRequestError, ONCE.chat.completions.create, model=ARGS.agent, messages=messages, **member
        )
        same((error.code, error.param), ("unsupported_parameter", next(iter(member))))
    raises(openai.NotFoundError, ONCE.responses.retrieve, "resp_1")
    raises(openai.NotFoundError, ONCE.get, "/nothing", cast_to=object)
    raises(openai.NotFoundError, ONCE.embeddings.create, model=ARGS.model, input="x")


@check
def failure_of_the_model_is_the_responses():
    made = CLIENT.responses.create(model=ARGS.model, input=f"[fail 400] {uuid.uuid4()}")
    same(made.status, "failed")
    assert made.error.code and made.error.message
    events = list(CLIENT.responses.create(model=ARGS.model, input=f"[fail 400] {uuid.uuid4()}", stream=True))
    same((events[-1].type, sound(events).status), ("response.failed", "failed"))
    messages = [{"role": "user", "content": f"[fail 400] {uuid.uuid4()}"}]
    for stream in (False, True):
        error = None
        try:
            answer = ONCE.chat.completions.create(model=ARGS.model, messages=messages, stream=stream)
            list(answer)
        except openai.APIStatusError as caught:
            error = caught
        assert error and error.status_code >= 400, error
        same(error.response.headers["x-should-retry"], "false")


@check
def failure_that_heals_is_retried_by_the_fleet():
    text = f"[once 503] {uuid.uuid4()}"
    same(ONCE.responses.create(model=ARGS.model, input=text).output_text, f"You said: {text}")
    same(asked(text), 2)


@check
def run_pays_once():
    headers = {"Longhaul-Run": f"doors-{uuid.uuid4()}", "Longhaul-Attempt": "1"}
    text = f"Paid once {uuid.uuid4()}"

    def both(attempt):
        client = CLIENT.with_options(default_headers={**headers, "Longhaul-Attempt": attempt})
        chat = client.chat.completions.create(model=ARGS.model, messages=[{"role": "user", "content": text}])
        stream = list(client.responses.create(model=ARGS.model, input=text, stream=True))
        return chat.choices[0].message.content, stream[-1].response.output_text

    first = both("1")
    paid = asked(text)
    same(both("2"), first)
    same(asked(text), paid)
    prefixed = OpenAI(base_url=f"{ARGS.url}/runs/{headers['Longhaul-Run']}/attempts/3/v1", api_key=ARGS.key)
    prefixed.chat.completions.create(model=ARGS.model, messages=[{"role": "user", "content": text}])
    same(asked(text), paid)
    error = raises(
        openai.BadRequestError, ONCE.responses.create, model=ARGS.model, input="x", extra_headers={"Longhaul-Run": "a"}
    )
    assert "Longhaul-Attempt" in str(error)


class LosesFirstAnswer(threading.Thread):
    """A proxy that breaks the first connection once the answer to it begins."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.connections = 0

    def run(self):
        while True:
            client, _ = self.listener.accept()
            self.connections += 1
            server = socket.create_connection((urlsplit(ARGS.url).hostname, urlsplit(ARGS.url).port))
            ways = ((client, server, False), (server, client, self.connections == 1))
            for way in ways:
                threading.Thread(target=self.copy, args=way, daemon=True).start()

    def copy(self, source, target, breaks):
        while (part := source.recv(65_536)) and not breaks:
            target.sendall(part)
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # The other way has closed it.


@check
def retry_after_a_lost_answer_pays_once():
    for stream in (False, True):
        proxy, text = LosesFirstAnswer(), f"Lost {uuid.uuid4()}"
        proxy.start()
        headers = {"Longhaul-Run": f"doors-{uuid.uuid4()}", "Longhaul-Attempt": "1"}
        client = OpenAI(base_url=f"{proxy.url}/v1", api_key=ARGS.key, default_headers=headers, timeout=60)
        made = client.responses.create(model=ARGS.model, input=text, stream=stream)
        response = list(made)[-1].response if stream else made
        same((response.output_text, proxy.connections, asked(text)), (f"You said: {text}", 2, 1))


@check
def run_outlives_its_client():
    for model in BOTH:
        text = f"[slow 1] [words 20] {uuid.uuid4()}"
        stream = CLIENT.responses.create(model=model, input=text, stream=True)
        id = next(iter(stream)).response.id
        stream.close()
        polled = CLIENT.responses.retrieve(id, include=["message.output_text.logprobs"])
        while polled.status in ("queued", "in_progress"):
            polled = CLIENT.responses.retrieve(id)
        same((polled.status, asked(text)), ("completed", 1))


# Chat completions


@check
def chat_is_created():
    for model in BOTH:
        made = CLIENT.chat.completions.create(
            model=model,
            messages=[
                {"role": "system", "content": "Be brief."},
                {"role": "developer", "content": "Really."},
                {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
            ],
            temperature=0.1,
            seed=3,
        )
        choice = made.choices[0]
        same(
            (made.object, choice.finish_reason, choice.message.content), ("chat.completion", "stop", "You said: Hello.")
        )
        assert made.id.startswith("chatcmpl-") and made.usage.total_tokens > 0
    cut = CLIENT.chat.completions.create(model=ARGS.model, messages=[{"role": "user", "content": "[cut] x"}])
    same(cut.choices[0].finish_reason, "length")


@check
def chat_streams():
    for model in BOTH:
        messages = [{"role": "user", "content": "[words 30]"}]
        chunks = list(
            CLIENT.chat.completions.create(
                model=model, messages=messages, stream=True, stream_options={"include_usage": True}
            )
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        same(text, " ".join(f"word{at}" for at in range(30)))
        assert chunks[-1].usage.total_tokens > 0 and not chunks[-1].choices
        same(len({chunk.id for chunk in chunks}), 1)
        with CLIENT.chat.completions.stream(model=model, messages=messages) as stream:
            same([event.content for event in stream if event.type == "content.done"], [text])
            same(stream.get_final_completion().choices[0].message.content, text)


@check
def chat_is_parsed_by_a_schema():
    for model in BOTH:
        parsed = CLIENT.chat.completions.parse(
            model=model, messages=[{"role": "user", "content": "City?"}], response_format=City
        )
        same(parsed.choices[0].message.parsed, City(name="Oslo", people=7))


@check
def chat_functions_are_run_by_the_client():
    for model in BOTH:
        messages = [{"role": "user", "content": "Both? [both]"}]
        tools = [chat_tool(WEATHER), chat_tool(TIME)]
        message = CLIENT.chat.completions.create(model=model, messages=messages, tools=tools).choices[0].message
        same([call.function.name for call in message.tool_calls], ["get_time", "get_weather"])
        messages.append(message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": call.function.name} for call in message.tool_calls
        ]
        last = CLIENT.chat.completions.create(model=model, messages=messages, tools=tools).choices[0]
        same((last.finish_reason, last.message.content), ("stop", "Results: get_time; get_weather"))
        chunks = CLIENT.chat.completions.create(model=model, messages=messages[:1], tools=tools, stream=True)
        deltas = [delta for chunk in chunks for delta in chunk.choices[0].delta.tool_calls or []]
        arguments = ["".join(delta.function.arguments or "" for delta in deltas if delta.index == at) for at in (0, 1)]
        same([json.loads(text) for text in arguments], [CITY, CITY])


# The asynchronous client


@check
async def async_client_does_the_same():
    async with AsyncOpenAI(base_url=f"{ARGS.url}/v1", api_key=ARGS.key, timeout=60) as client:
        for model in BOTH:
            made = await client.responses.create(model=model, input="Hello.")
            same(made.output_text, "You said: Hello.")
            stream = await client.responses.create(model=model, input="[words 9]", stream=True, background=True)
            events = [event async for event in stream]
            sound(events)
            resumed = await client.responses.retrieve(events[0].response.id, stream=True, starting_after=3)
            same([dump(event) async for event in resumed], [dump(event) for event in events[4:]])
            parsed = await client.responses.parse(model=model, input="City?", text_format=City)
            same(parsed.output_parsed, City(name="Oslo", people=7))
            chat = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "Hi."}], stream=True
            )
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in chat])
            same(text, "You said: Hi.")
        ids = [model.id async for model in client.models.list()]
        assert ARGS.agent in ids


if __name__ == "__main__":
    main()

# Runs the code of one request in a module of its own and reports over the socket that was standard input.
# It is confined when it starts, so nothing here is a boundary.
def _main():
    import os, sys

    channel = os.dup(0)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.closerange(3, channel)
    os.closerange(channel + 1, 256)

    import builtins, json, linecache, traceback, types

    blocks = []
    while block := os.read(channel, 65536):
        blocks.append(block)
    try:
        request = json.loads(b"".join(blocks))
    except (RecursionError, ValueError) as raised:
        # Too deep, or a number of too many digits: nothing of it can run.
        error = {"type": "SandboxProcessError", "message": f"input cannot be read: {raised}"}
        os.write(channel, json.dumps({"exit_code": 1, "error": error, "result": None}).encode())
        os._exit(1)
    del blocks
    code, name = request["code"], "<sandbox>"

    for stream in (sys.stdout, sys.stderr):
        # What was printed before a timeout is worth seeing; a lone surrogate is no reason to fail.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    sys.argv = [name]
    sys.path.append(os.getcwd())
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)

    # One namespace, so that functions see what is at the top.
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    space = module.__dict__
    space.update(__builtins__=builtins, input_payload=request["input"], input=request["input"], result=None)
    if not request["allow_imports"]:
        # The wish of whoever wrote the policy, not what confines: what modules import for themselves is not asked.
        def refuse(name, *_, **__):
            raise ImportError(f"import of {name!r}: the policy says allow_imports is false")

        space["__builtins__"] = dict(vars(builtins), __import__=refuse)

    def describe(raised):
        try:
            message = str(raised)
        except BaseException:
            message = "(the exception cannot be shown)"
        if len(message) > 4000:
            message = message[:4000] + " [truncated]"
        return {"type": type(raised).__name__, "message": message.encode("utf-8", "backslashreplace").decode()}

    def send(report):
        data = memoryview(report.encode("utf-8"))
        while data:
            data = data[os.write(channel, data):]

    error, status = None, 0
    try:
        exec(compile(code, name, "exec", dont_inherit=True), space)
    except SystemExit as raised:
        status = raised.code if isinstance(raised.code, int) else 0 if raised.code is None else 1
        if isinstance(raised.code, str):
            print(raised.code, file=sys.stderr)
        status &= 255
        if status:
            error = {"type": "SystemExit", "message": f"the code exited with status {status}"}
    except BaseException as raised:
        status, error = 1, describe(raised)
        try:
            own = raised.__traceback__.tb_next if raised.__traceback__ else None
            traceback.print_exception(type(raised), raised, own)
        except BaseException:
            pass

    # As the interpreter would: threads that are no daemons end first, then what was registered for the end.
    try:
        if "threading" in sys.modules:
            import threading

            for thread in threading.enumerate():
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
        import atexit

        atexit._run_exitfuncs()
    except BaseException as raised:
        if error is None:
            status, error = 1, describe(raised)

    result = "null"
    if error is None:
        try:
            result = json.dumps(space.get("result"), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
            size = len(result.encode("utf-8"))
            if size > request["result_bytes"]:
                raise ValueError(f"it has {size} bytes, of which at most {request['result_bytes']} are returned")
        except BaseException as raised:
            told = describe(raised)["message"]
            result, status = "null", 1
            error = {"type": "SandboxProcessError", "message": f"result cannot be returned as JSON: {told}"}
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:
        pass
    send('{"exit_code": %d, "error": %s, "result": %s}' % (status, json.dumps(error), result))
    os._exit(status)


_main()

from longhaul.worker import App, Context

app = App("hello")


@app.task
async def greet(ctx: Context, name: str) -> str:
    return await ctx.step("greeting", "Hello, {}!".format, name)


if __name__ == "__main__":
    print(greet.run("Ada"))

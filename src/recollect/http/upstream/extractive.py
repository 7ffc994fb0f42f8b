"""(to be replaced)"""


class Extractive:
    name = "x"

    async def send(self, ask):
        raise NotImplementedError

    async def close(self):
        pass

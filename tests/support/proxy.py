"""A TCP proxy on loopback that plays a bad network.

    proxy = Proxy(target_port)
    proxy.stall()          # bytes stop, connections stay
    proxy.delay(0.2)       # every chunk arrives 0.2 s later, in each direction
    proxy.throttle(50_000) # bytes a second, for each connection and direction
    proxy.cut()            # every connection is closed; new ones are taken
    proxy.reset()          # the same with RST
    proxy.refuse()         # cut, and nothing new is taken
    proxy.close_door()     # the port is closed, connections stay; for good
    proxy.slow(2.0, b"needle", b"pin")  # a chunk with any of these, and those behind it, arrive 2 s later
    proxy.watch(b"needle", action)  # called, in the proxy's thread, instead of passing these on
    proxy.heal()

Control methods return when the change holds; any thread may call them.
"""

import asyncio
import socket
import struct
import threading

CHUNK = 64 * 1024
READ_AHEAD = 256  # chunks; a stalled receiver must make the sender's window fill


class Proxy:
    def __init__(self, target_port, target_host="127.0.0.1"):
        self.target = (target_host, target_port)
        self.port = None
        self.accepted = 0
        self._latency = 0.0
        self._rate = None
        self._refusing = False
        self._needle, self._action = None, None
        self._slow, self._slow_latency = (), 0.0
        self._writers = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._flowing = asyncio.Event()
        self._call(self._listen())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def stall(self):
        self._call(self._set_flowing(False))

    def delay(self, seconds):
        self._latency = seconds

    def throttle(self, bytes_per_second):
        self._rate = bytes_per_second

    def cut(self):
        self._call(self._end_connections(False))

    def reset(self):
        self._call(self._end_connections(True))

    def close_door(self):
        self._call(self._stop_listening())

    def refuse(self):
        self._refusing = True
        self.cut()

    def watch(self, needle, action):
        """The chunk in which it ends goes no further, nor does what comes behind it."""
        self._needle, self._action = needle, action

    def slow(self, seconds, *needles):
        self._slow, self._slow_latency = needles, seconds

    def heal(self):
        self._latency, self._rate, self._refusing = 0.0, None, False
        self._needle, self._slow = None, ()
        self._call(self._set_flowing(True))

    @property
    def connections(self):
        return len(self._writers) // 2

    def close(self):
        if self._loop.is_closed():
            return
        self._call(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _listen(self):
        self._flowing.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self):
        self._server.close()

    async def _set_flowing(self, flowing):
        if flowing:
            self._flowing.set()
        else:
            self._flowing.clear()

    async def _end_connections(self, with_reset):
        for writer in list(self._writers):
            if with_reset:
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _finish(self):
        self._server.close()
        await self._end_connections(False)
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, client_reader, client_writer):
        if self._refusing:
            client_writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self.target)
        except OSError:
            client_writer.transport.abort()
            return
        self.accepted += 1
        pair = {client_writer, server_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._pump(client_reader, server_writer),
                                 self._pump(server_reader, client_writer))
        finally:
            self._writers -= pair
            for writer in pair:
                writer.transport.abort()

    async def _pump(self, reader, writer):
        """Reading and writing run apart, so that a delay costs latency and not throughput."""
        chunks = asyncio.Queue(READ_AHEAD)
        await asyncio.gather(self._fill(reader, chunks), self._drain(chunks, writer))

    async def _fill(self, reader, chunks):
        seen = b""
        while True:
            try:
                data = await reader.read(CHUNK)
            except OSError:
                data = b""
            if self._needle:
                seen = seen[-len(self._needle):] + data
                if self._needle in seen:
                    self._action()
                    data = b""
            slow = any(needle in data for needle in self._slow)
            latency = self._slow_latency if slow else self._latency
            await chunks.put((self._loop.time() + latency, data))
            if not data:
                return

    async def _drain(self, chunks, writer):
        while True:
            due, data = await chunks.get()
            await asyncio.sleep(due - self._loop.time())
            await self._flowing.wait()
            if self._rate:
                await asyncio.sleep(len(data) / self._rate)
            try:
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()
            except (OSError, RuntimeError):
                writer.transport.abort()
                return

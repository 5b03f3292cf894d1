"""Reads and writes MCAP files with the library of Foxglove: what an independent program sees in a recording.

mcap_file.py read FILE                          prints a JSON line for the file, then one for each message
mcap_file.py write FILE TOPIC COMPRESSION ...   writes files of three messages; COMPRESSION is a name of the library
"""

import json
import sys

from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer


def read(path):
    with open(path, "rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        channels = [] if summary is None else summary.channels.values()
        metadata = {record.name: record.metadata for record in reader.iter_metadata()}
        print(json.dumps({
            "profile": reader.get_header().profile,
            "metadata": metadata,
            "topics": sorted(channel.topic for channel in channels),
            "messages": None if summary is None else summary.statistics.message_count,
        }))
        for schema, channel, message in reader.iter_messages():
            print(json.dumps({
                "topic": channel.topic,
                "encoding": channel.message_encoding,
                "schema": schema and schema.name,
                "metadata": channel.metadata,
                "sequence": message.sequence,
                "log_time": message.log_time,
                "data": message.data.decode(errors="replace"),
            }))


def write(*files):
    for path, topic, compression in zip(files[0::3], files[1::3], files[2::3]):
        write_file(path, topic, compression)


def write_file(path, topic, compression):
    with open(path, "wb") as file:
        writer = Writer(file, compression=CompressionType[compression])
        writer.start()
        schema = writer.register_schema(name="Pose", encoding="ros2msg", data=b"float64 x")
        channel = writer.register_channel(topic=topic, message_encoding="cdr", schema_id=schema)
        for number in range(3):
            writer.add_message(channel, log_time=number, publish_time=number, data=f"pose {number}".encode())
        writer.finish()


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](*sys.argv[2:])

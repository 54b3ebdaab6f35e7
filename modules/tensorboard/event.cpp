#include "tensorboard/event.hpp"

#include <cstring>

#include "tensorboard/crc32c.hpp"

namespace lockstep::tensorboard {
namespace {

// Little-endian, whatever the machine.
template <class Word>
void append_word(std::string& bytes, Word word) {
    for (std::size_t i = 0; i < sizeof(Word); ++i) bytes += static_cast<char>((word >> (8 * i)) & 0xff);
}

// A protobuf message, written field by field.
class Message {
  public:
    void add_integer(unsigned field, std::uint64_t value) {
        add_key(field, varint);
        add_varint(value);
    }
    void add_double(unsigned field, double value) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        add_key(field, eight_bytes);
        append_word(bytes_, bits);
    }
    void add_float(unsigned field, float value) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        add_key(field, four_bytes);
        append_word(bytes_, bits);
    }
    void add_text(unsigned field, std::string_view text) {
        add_key(field, length_delimited);
        add_varint(text.size());
        bytes_ += text;
    }
    void add_message(unsigned field, const Message& message) { add_text(field, message.bytes_); }
    const std::string& bytes() const { return bytes_; }

  private:
    enum WireType : unsigned { varint = 0, eight_bytes = 1, length_delimited = 2, four_bytes = 5 };
    void add_key(unsigned field, WireType type) { add_varint(field << 3 | type); }
    void add_varint(std::uint64_t value) {
        for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
        bytes_ += static_cast<char>(value);
    }
    std::string bytes_;
};

// Field numbers and constants of the .proto files.
namespace event {
constexpr unsigned wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace session_log {
constexpr unsigned status = 1, start = 1;
}
namespace summary {
constexpr unsigned value = 1;
}
namespace value {
constexpr unsigned tag = 1, simple_value = 2, tensor = 8, metadata = 9;
}
namespace metadata {
constexpr unsigned plugin_data = 1, plugin_name = 1, data_class = 4, data_class_tensor = 2;
}
namespace tensor {
constexpr unsigned type = 1, shape = 2, string_value = 8, type_string = 7;
}

Message event_at(double wall_time, std::int64_t step) {
    Message event;
    event.add_double(event::wall_time, wall_time);
    if (step != 0) event.add_integer(event::step, static_cast<std::uint64_t>(step));
    return event;
}

// A checksum of data that holds checksums is weak, so that the format masks them.
std::uint32_t masked_checksum(std::string_view bytes) {
    const std::uint32_t checksum = crc32c(bytes);
    return (checksum >> 15 | checksum << 17) + 0xA282EAD8;
}

std::string framed(const Message& event) {
    std::string record;
    append_word(record, std::uint64_t{event.bytes().size()});
    append_word(record, masked_checksum(record));
    record += event.bytes();
    append_word(record, masked_checksum(event.bytes()));
    return record;
}

}  // namespace

std::string version_record(double wall_time) {
    Message event = event_at(wall_time, 0);
    event.add_text(event::file_version, "brain.Event:2");
    return framed(event);
}

std::string start_record(double wall_time, std::int64_t step) {
    Message log;
    log.add_integer(session_log::status, session_log::start);
    Message event = event_at(wall_time, step);
    event.add_message(event::session_log, log);
    return framed(event);
}

std::string scalars_record(double wall_time, std::int64_t step, const std::vector<Scalar>& scalars) {
    Message summary;
    for (const Scalar& scalar : scalars) {
        Message value;
        value.add_text(value::tag, scalar.tag);
        value.add_float(value::simple_value, static_cast<float>(scalar.value));
        summary.add_message(summary::value, value);
    }
    Message event = event_at(wall_time, step);
    event.add_message(event::summary, summary);
    return framed(event);
}

std::string text_record(double wall_time, std::int64_t step, std::string_view tag, std::string_view markdown) {
    Message plugin, metadata, tensor, value, summary;
    plugin.add_text(metadata::plugin_name, "text");
    metadata.add_message(metadata::plugin_data, plugin);
    metadata.add_integer(metadata::data_class, metadata::data_class_tensor);
    tensor.add_integer(tensor::type, tensor::type_string);
    tensor.add_message(tensor::shape, {});  // no dimensions: one text
    tensor.add_text(tensor::string_value, markdown);
    value.add_text(value::tag, tag);
    value.add_message(value::tensor, tensor);
    value.add_message(value::metadata, metadata);
    summary.add_message(summary::value, value);
    Message event = event_at(wall_time, step);
    event.add_message(event::summary, summary);
    return framed(event);
}

std::string as_code(std::string_view text) {
    std::string markdown = "    ";
    for (const char letter : text) {
        markdown += letter;
        if (letter == '\n') markdown += "    ";
    }
    return markdown;
}

}  // namespace lockstep::tensorboard

// Reads TensorBoard's event files with a decoder of its own: bit by bit where the product has tables, and by field
// numbers as the .proto files give them. What is not as the format wants it throws.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tests {

inline std::uint32_t plain_crc32c(std::string_view bytes) {
    std::uint32_t rest = 0xFFFFFFFF;
    for (const char byte : bytes) {
        rest ^= static_cast<unsigned char>(byte);
        for (int bit = 0; bit < 8; ++bit) rest = (rest & 1) != 0 ? rest >> 1 ^ 0x82F63B78 : rest >> 1;
    }
    return rest ^ 0xFFFFFFFF;
}

template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
    Number number{};
    if (at + sizeof number > bytes.size()) throw std::runtime_error("the file ends within a number");
    std::memcpy(&number, bytes.data() + at, sizeof number);
    return number;
}

// One field of a message: bytes of texts and messages, or the bits of a number.
struct ProtoField {
    unsigned number = 0, wire_type = 0;
    std::uint64_t bits = 0;
    std::string_view bytes;
};

inline std::uint64_t take_varint(std::string_view& rest) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (rest.empty()) throw std::runtime_error("a message ends within a number");
        const auto byte = static_cast<unsigned char>(rest.front());
        rest.remove_prefix(1);
        value |= std::uint64_t{byte & 0x7fu} << shift;
        if (byte < 0x80) return value;
    }
    throw std::runtime_error("a number has more than 64 bits");
}

inline std::vector<ProtoField> fields_of(std::string_view message) {
    std::vector<ProtoField> fields;
    while (!message.empty()) {
        const std::uint64_t key = take_varint(message);
        ProtoField field{static_cast<unsigned>(key >> 3), static_cast<unsigned>(key & 7), 0, {}};
        std::size_t size = 0;
        if (field.wire_type == 0) {
            field.bits = take_varint(message);
        } else if (field.wire_type == 1) {
            field.bits = number_at<std::uint64_t>(message, 0);
            size = 8;
        } else if (field.wire_type == 2) {
            size = take_varint(message);
            if (size > message.size()) throw std::runtime_error("a field reaches beyond its message");
            field.bytes = message.substr(0, size);
        } else if (field.wire_type == 5) {
            field.bits = number_at<std::uint32_t>(message, 0);
            size = 4;
        } else {
            throw std::runtime_error("a wire type that protobuf does not have");
        }
        message.remove_prefix(size);
        fields.push_back(field);
    }
    return fields;
}

// The field of that number, which must be there once at most.
inline std::optional<ProtoField> field_of(std::string_view message, unsigned number) {
    std::optional<ProtoField> found;
    for (const ProtoField& field : fields_of(message)) {
        if (field.number != number) continue;
        if (found) throw std::runtime_error("a field is there twice");
        found = field;
    }
    return found;
}

inline std::string_view inner(std::string_view message, unsigned number) {
    const auto field = field_of(message, number);
    if (!field || field->wire_type != 2) throw std::runtime_error("a message or text is missing");
    return field->bytes;
}

struct BoardEvent {
    double wall_time = 0;
    std::int64_t step = 0;
    std::string file_version;
    bool start = false;  // of a session
    std::map<std::string, float> scalars;
    std::map<std::string, std::string> texts;
};

inline BoardEvent event_of(std::string_view message) {
    BoardEvent event;
    for (const ProtoField& field : fields_of(message)) {
        if (field.number == 1) std::memcpy(&event.wall_time, &field.bits, sizeof field.bits);
        if (field.number == 2) event.step = static_cast<std::int64_t>(field.bits);
        if (field.number == 3) event.file_version = std::string(field.bytes);
        if (field.number == 7) event.start = field_of(field.bytes, 1)->bits == 1;
        if (field.number != 5) continue;
        for (const ProtoField& value : fields_of(field.bytes)) {
            if (value.number != 1) throw std::runtime_error("a summary holds more than values");
            const std::string tag(inner(value.bytes, 1));
            if (const auto simple = field_of(value.bytes, 2)) {
                if (simple->wire_type != 5) throw std::runtime_error("a scalar is no float");
                float number = 0;
                const auto bits = static_cast<std::uint32_t>(simple->bits);
                std::memcpy(&number, &bits, sizeof number);
                event.scalars[tag] = number;
            } else {
                const std::string_view tensor = inner(value.bytes, 8), plugin = inner(inner(value.bytes, 9), 1);
                if (field_of(tensor, 1)->bits != 7) throw std::runtime_error("a tensor is no text");
                if (inner(plugin, 1) != "text") throw std::runtime_error("a text is not the text plugin's");
                event.texts[tag] = std::string(inner(tensor, 8));
            }
        }
    }
    return event;
}

// All events of a file's bytes, which must be whole records.
inline std::vector<BoardEvent> events_of(std::string_view bytes) {
    const auto check = [](std::string_view checked, std::uint32_t masked) {
        const std::uint32_t rotated = masked - 0xa282ead8u;
        if ((rotated >> 17 | rotated << 15) != plain_crc32c(checked)) throw std::runtime_error("a checksum is wrong");
    };
    std::vector<BoardEvent> events;
    while (!bytes.empty()) {
        const auto size = number_at<std::uint64_t>(bytes, 0);
        check(bytes.substr(0, 8), number_at<std::uint32_t>(bytes, 8));
        if (size > bytes.size() || bytes.size() - size < 16) throw std::runtime_error("the file ends within a record");
        check(bytes.substr(12, size), number_at<std::uint32_t>(bytes, 12 + size));
        events.push_back(event_of(bytes.substr(12, size)));
        bytes.remove_prefix(16 + size);
    }
    return events;
}

// What TensorBoard shows of the files of a folder, given in the order of their names: by tag and step. The beginning of
// a session takes back what was written of its first step and later ones.
struct Board {
    std::map<std::string, std::map<std::int64_t, float>> scalars;
    std::map<std::int64_t, std::string> descriptions;

    void add(const std::vector<BoardEvent>& events) {
        if (events.empty()) return;
        if (events.front().file_version != "brain.Event:2") throw std::runtime_error("the file has no version");
        for (const BoardEvent& event : events) {
            if (event.start) {
                for (auto& [tag, values] : scalars) values.erase(values.lower_bound(event.step), values.end());
                descriptions.erase(descriptions.lower_bound(event.step), descriptions.end());
            }
            for (const auto& [tag, value] : event.scalars)
                if (!scalars[tag].emplace(event.step, value).second) throw std::runtime_error(tag + " is shown twice");
            for (const auto& [tag, text] : event.texts)
                if (!descriptions.emplace(event.step, text).second) throw std::runtime_error(tag + " is shown twice");
        }
    }
};

}  // namespace lockstep::tests

#include "data/encode_in_parts.hpp"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/open_file.hpp"
#include "data/mapped_file.hpp"
#include "data/part_encoder.hpp"
#include "device/parallel.hpp"

namespace lockstep::data {
namespace {

class Document {
  public:
    explicit Document(const TextFile& file) : file_(file), mapped_(file.path) { check(mapped_.bytes()); }
    std::string_view text() const { return {reinterpret_cast<const char*>(mapped_.data()), mapped_.bytes()}; }
    // Usage error if the file has another size than at first.
    void check_again() const { check(file_bytes(file_.path)); }

  private:
    void check(std::uint64_t bytes) const {
        if (bytes != file_.bytes)
            throw usage_error("{} changed while being read; start again when nothing writes to it", file_.path);
    }
    const TextFile& file_;
    MappedFile mapped_;
};

bool is_letter(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

// Where a document is cut: between two words, where most tokenizers begin a token. The tokens do not depend on it, but
// the work does: what begins elsewhere is encoded again.
std::size_t end_of_part(std::string_view text, std::size_t begin, std::size_t bytes) {
    if (text.size() - begin <= bytes) return text.size();
    const std::size_t most = begin + bytes;
    for (std::size_t at = most; at > begin + 1; --at)
        if (text[at] == ' ' && is_letter(text[at - 1]) && at + 1 < text.size() && is_letter(text[at + 1])) return at;
    const auto newline = text.rfind('\n', most - 1);
    if (newline != std::string_view::npos && newline > begin) return newline + 1;
    // No character is longer than four bytes.
    for (std::size_t at = most; at > begin && at + 4 > most; --at)
        if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) return at;
    return most;
}

struct Part {
    std::shared_ptr<const Document> document;
    std::size_t begin = 0, end = 0;
    std::vector<std::int32_t> tokens;
    PartEncoder::Place reached;
    bool done = false;  // the tokens and `reached` are known, if one begins at `begin`

    PartEncoder::Place start() const { return {begin, begin == 0}; }
};

// The parts of all documents in order, a group at a time.
class PartReader {
  public:
    PartReader(const TextFiles& text, std::size_t part_bytes, bool divides)
        : files_(text.files), part_bytes_(part_bytes), divides_(divides) {}

    std::vector<Part> next(std::size_t count) {
        std::vector<Part> group;
        while (group.size() < count && (document_ || file_ < files_.size())) {
            if (!document_) document_ = std::make_shared<const Document>(files_[file_++]);
            const std::string_view text = document_->text();
            Part& part = group.emplace_back();
            part.document = document_;
            part.begin = begin_;
            part.end = divides_ ? end_of_part(text, begin_, part_bytes_) : text.size();
            begin_ = part.end;
            if (begin_ < text.size()) continue;
            document_.reset();
            begin_ = 0;
        }
        return group;
    }

  private:
    const std::vector<TextFile>& files_;
    std::size_t part_bytes_;
    bool divides_;
    std::size_t file_ = 0;
    std::shared_ptr<const Document> document_;
    std::size_t begin_ = 0;  // of the next part
};

// With the byte 0 that stands between documents.
std::string text_of(const std::vector<Part>& group, bool first_of_all) {
    std::string text;
    for (const Part& part : group) {
        if (part.begin == 0 && !(first_of_all && &part == &group.front())) text += '\0';
        text += part.document->text().substr(part.begin, part.end - part.begin);
    }
    return text;
}

}  // namespace

void encode_in_parts(const TextFiles& text, const Tokenizer& tokenizer, const EncodeOptions& options,
                     const std::function<void(const void* tokens, std::size_t bytes)>& take) {
    const PartEncoder& encoder = *tokenizer.parts();
    const std::size_t width = token_width(tokenizer);
    Progress progress(options.title, text.bytes(), options.progress);
    PartReader reader(text, options.part_bytes, encoder.divides());
    PartEncoder::Place place;  // up to which the current document's tokens were taken
    std::uint64_t done = 0;
    bool first_of_all = true;
    std::string bytes;
    for (auto group = reader.next(16 * static_cast<std::size_t>(threads())); !group.empty();
         group = reader.next(16 * static_cast<std::size_t>(threads()))) {
        if (options.statistics) options.statistics->add(text_of(group, first_of_all));
        parallel_for(static_cast<std::int64_t>(group.size()), 1, [&](std::int64_t first, std::int64_t last, int) {
            for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
                Part& part = group[i];
                part.reached = part.start();
                part.done = encoder.encode_part(part.document->text(), part.reached, part.end, false, part.tokens);
            }
        });
        bytes.clear();
        for (Part& part : group) {
            const std::string_view document = part.document->text();
            if (part.begin == 0) {
                if (!first_of_all && tokenizer.boundary() >= 0) append_tokens({tokenizer.boundary()}, width, bytes);
                place = {};
                first_of_all = false;
            }
            done += part.end - part.begin;
            if (place.at < part.end) {  // else the last token of an earlier part reaches behind this one
                if (!part.done || !(part.start() == place)) {
                    part.tokens.clear();
                    part.reached = place;
                    encoder.encode_part(document, part.reached, part.end, true, part.tokens);
                }
                append_tokens(part.tokens, width, bytes);
                place = part.reached;
            }
            if (part.end == document.size()) part.document->check_again();
        }
        take(bytes.data(), bytes.size());
        progress.show(done);
    }
}

}  // namespace lockstep::data

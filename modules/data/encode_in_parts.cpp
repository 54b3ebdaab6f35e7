#include "data/encode_in_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/open_file.hpp"
#include "data/json_lines.hpp"
#include "data/mapped_file.hpp"
#include "data/part_encoder.hpp"
#include "device/parallel.hpp"

namespace lockstep::data {
namespace {

// A file, or a line of JSON Lines.
class Document {
  public:
    explicit Document(const TextFile& file) : file_(&file), mapped_(std::in_place, file.path) {
        check(mapped_->bytes());
    }
    Document(std::string line, std::string name) : name_(std::move(name)), line_(std::move(line)) {}
    // For errors: the file, and the line of JSON Lines.
    const std::string& name() const { return file_ ? file_->path : name_; }
    std::string_view text() const {
        if (!mapped_) return line_;
        return {reinterpret_cast<const char*>(mapped_->data()), mapped_->bytes()};
    }
    // Usage error if the file has another size than at first.
    void check_again() const {
        if (file_) check(file_bytes(file_->path));
    }

  private:
    void check(std::uint64_t bytes) const {
        if (bytes != file_->bytes)
            throw usage_error("{} changed while being read; retry when nothing writes to it", file_->path);
    }
    const TextFile* file_ = nullptr;
    std::optional<MappedFile> mapped_;
    std::string name_, line_;
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
    const auto newline = text.substr(begin, bytes).rfind('\n');
    if (newline != std::string_view::npos && newline > 0) return begin + newline + 1;
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
        : text_(text), part_bytes_(part_bytes), divides_(divides) {}

    // At most `count` parts; of lines of JSON Lines, and of files that are one part each, no more than about `bytes`.
    std::vector<Part> next(std::size_t count, std::size_t bytes) {
        std::vector<Part> group;
        std::size_t held = 0;
        while (group.size() < count && held < bytes && begin_document()) {
            const std::string_view text = document_->text();
            Part& part = group.emplace_back();
            part.document = document_;
            part.begin = begin_;
            part.end = divides_ ? end_of_part(text, begin_, part_bytes_) : text.size();
            if (lines_ || !divides_) held += part.end - part.begin;
            result_.text_bytes += part.end - part.begin;
            begin_ = part.end;
            if (begin_ == text.size()) end_document();
        }
        if (group.empty() && result_.documents == 0)
            throw usage_error("no text: {} has only empty documents", text_.files.front().path);
        return group;
    }

    const EncodeResult& result() const { return result_; }
    // Bytes of the files on disk.
    std::uint64_t consumed() const { return done_files_ + (lines_ ? lines_->consumed() : begin_); }

  private:
    // False: there is none left.
    bool begin_document() {
        for (; !document_ && file_ < text_.files.size();) {
            const TextFile& file = text_.files[file_];
            std::string line;
            if (file.json_lines && !lines_) lines_.emplace(file.path, text_.field);
            if (!file.json_lines) {
                document_ = std::make_shared<const Document>(file);
            } else if (lines_->next(line)) {
                document_ =
                    std::make_shared<const Document>(std::move(line), fmt::format("{}:{}", file.path, lines_->line()));
            } else {
                result_.empty_documents += lines_->empty();
                lines_.reset();
                end_file();
            }
            if (document_) ++result_.documents;
        }
        return document_ != nullptr;
    }
    void end_document() {
        document_.reset();
        begin_ = 0;
        if (!lines_) end_file();
    }
    void end_file() { done_files_ += text_.files[file_++].bytes; }

    const TextFiles& text_;
    std::size_t part_bytes_;
    bool divides_;
    std::size_t file_ = 0;
    std::uint64_t done_files_ = 0;  // bytes on disk of those before it
    std::optional<JsonLines> lines_;
    std::shared_ptr<const Document> document_;
    std::size_t begin_ = 0;  // of the next part
    EncodeResult result_;
};

// PartEncoder's, with errors that name the document.
bool encode_part(const PartEncoder& encoder, const Document& document, PartEncoder::Place& from, std::size_t end,
                 bool patient, std::vector<std::int32_t>& tokens) {
    try {
        return encoder.encode_part(document.text(), from, end, patient, tokens);
    } catch (const Error& problem) {
        throw Error(problem.code(), document.name() + ": " + problem.what());
    }
}

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

EncodeResult encode_in_parts(const TextFiles& text, const Tokenizer& tokenizer, const EncodeOptions& options,
                             const std::function<void(const void* tokens, std::size_t bytes)>& take) {
    const PartEncoder& encoder = *tokenizer.parts();
    const std::size_t width = tokenizer.token_width();
    Progress progress(options.title, text.bytes(), options.progress);
    PartReader reader(text, options.part_bytes, encoder.divides());
    PartEncoder::Place place;    // up to which the current document's tokens were taken
    std::uint64_t position = 0;  // in the stream of tokens, before this group's
    bool first_of_all = true;
    std::string bytes;
    const auto next_group = [&] { return reader.next(16 * static_cast<std::size_t>(threads()), options.batch_bytes); };
    for (auto group = next_group(); !group.empty(); group = next_group()) {
        if (options.statistics) options.statistics->add(text_of(group, first_of_all));
        parallel_for(static_cast<std::int64_t>(group.size()), 1, [&](std::int64_t first, std::int64_t last, int) {
            for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
                Part& part = group[i];
                part.reached = part.start();
                part.done = encode_part(encoder, *part.document, part.reached, part.end, false, part.tokens);
            }
        });
        bytes.clear();
        for (Part& part : group) {
            if (part.begin == 0) {
                if (!first_of_all && tokenizer.boundary() >= 0) append_tokens({tokenizer.boundary()}, width, bytes);
                if (options.begin_document) options.begin_document(position + bytes.size() / width);
                place = {};
                first_of_all = false;
            }
            if (place.at < part.end) {  // else the last token of an earlier part reaches behind this one
                if (!part.done || !(part.start() == place)) {
                    part.tokens.clear();
                    part.reached = place;
                    encode_part(encoder, *part.document, part.reached, part.end, true, part.tokens);
                }
                append_tokens(part.tokens, width, bytes);
                place = part.reached;
            }
            if (part.end == part.document->text().size()) part.document->check_again();
        }
        take(bytes.data(), bytes.size());
        position += bytes.size() / width;
        progress.show(reader.consumed());
    }
    return reader.result();
}

}  // namespace lockstep::data

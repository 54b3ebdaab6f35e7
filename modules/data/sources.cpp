#include "data/sources.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "data/document_ends.hpp"
#include "data/encode.hpp"
#include "data/inputs.hpp"
#include "data/token_shards.hpp"
#include "data/tokenizer.hpp"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read in place as little-endian integers");

constexpr std::uint64_t small_file =
    1 << 20;  // smaller text files are copied: one mapping each would exceed the system's limit
constexpr std::size_t checksum_part = 1 << 20;

std::string tokenizer_name(const std::string& kind) {
    return kind.empty() ? "tokens without a tokenizer" : "tokenizer " + kind;
}

std::uint64_t ends_checksum(const std::byte* data, std::size_t bytes) {
    const std::size_t part = std::min(bytes, checksum_part);
    return hash64(data, part) ^ std::rotl(hash64(data + (bytes - part), part), 1);
}

}  // namespace

Sources::Sources(const SourceOptions& options, std::uint64_t& room) : with_document_ends_(options.with_document_ends) {
    if (options.paths.empty()) throw usage_error("no files or folders given");
    std::vector<std::string> text;
    std::shared_ptr<const Tokenizer> kept = options.kept;
    const auto add_gathered_text = [&] {
        if (text.empty()) return;
        if (!kept) kept = open_tokenizer(options.tokenizer);
        add_text(collect_text_files(text, options.jsonl_field), *kept, room);
        text.clear();
    };
    for (const Input& input : find_inputs(options.paths)) {
        if (input.kind == InputKind::text) {
            text.push_back(input.path);
            continue;
        }
        add_gathered_text();
        if (input.kind == InputKind::token_file)
            add_token_file(input.path);
        else if (input.kind == InputKind::megatron)
            add_megatron({input.path, input.index});
        else
            add_flat_file(input.path);
    }
    add_gathered_text();
}

void Sources::add_token_file(const std::string& path) {
    const TokenFile& file = token_files_.emplace_back(path);
    const TokenFileInfo& info = file.info();
    agree_on_tokenizer(info.tokenizer_kind, info.tokenizer_files, info.vocabulary, path);
    add_to_checksum(info.checksum);
    bytes_ += static_cast<double>(info.byte_count);
    bytes_known_ = bytes_known_ && info.byte_count > 0;
    if (with_document_ends_) end_documents(read_document_ends(info));
    add_segment(file.tokens(), info.token_width, static_cast<std::uint64_t>(info.token_count), path);
}

void Sources::add_flat_file(const std::string& path) {
    if (with_document_ends_)
        throw usage_error(
            "{} has no document boundaries: a raw .bin file holds only tokens; pack its text with lockstep pack, "
            "convert it to Megatron-LM's .bin and .idx, or read it with documents joined",
            path);
    const MappedFile& file = mapped_files_.emplace_back(path);
    const FlatLayout layout = flat_layout(file, path);
    const std::byte* tokens = file.data() + layout.header_bytes;
    add_to_checksum(layout.count);
    add_raw_tokens(file, largest_token(tokens, layout.width, layout.count), path);
    add_segment(tokens, layout.width, layout.count, path);
}

void Sources::add_megatron(const MegatronPaths& paths) {
    const std::string& path = paths.tokens;
    const MegatronFile& file = megatron_files_.emplace_back(paths, with_document_ends_);
    end_documents(file.document_ends());
    std::uint64_t largest = 0;
    for (const auto& run : file.runs())
        largest = std::max(largest, largest_token(file.file().data() + run.offset, file.width(), run.tokens));
    // Negative numbers are the largest of all when the sign is taken for a digit.
    if (file.has_sign() && largest >> (8 * file.width() - 1) != 0)
        throw damaged_error("{} is damaged: it holds a negative token", path);
    std::uint64_t order = file.tokens();
    if (file.runs().size() > 1) order ^= hash64(file.runs().data(), file.runs().size() * sizeof file.runs()[0]);
    add_to_checksum(order);
    add_raw_tokens(file.file(), largest, path);
    for (const auto& run : file.runs()) add_segment(file.file().data() + run.offset, file.width(), run.tokens, path);
    // No warnings: every rank reads the data, and all ranks' warnings are printed.
    if (file.unused_bytes() > 0)
        log::info("{}: {} at the end belong to no document and are ignored", path,
                  human_bytes(static_cast<double>(file.unused_bytes())));
    if (file.document_end())
        log::info("{}: {} document{}, ending in token {}", path,
                  with_commas(static_cast<std::int64_t>(file.documents())), plural(file.documents()),
                  *file.document_end());
    else if (file.documents() > 1 && !with_document_ends_)
        log::info("{}: its {} documents do not all end in the same token, so document ends are not marked", path,
                  with_commas(static_cast<std::int64_t>(file.documents())));
}

void Sources::add_raw_tokens(const MappedFile& file, std::uint64_t largest, const std::string& path) {
    if (largest >= std::uint64_t{1} << 31) throw damaged_error("{}: invalid token {}", path, largest);
    bytes_known_ = false;
    agree_on_tokenizer("", {}, static_cast<std::int64_t>(largest) + 1, path);
    add_to_checksum(ends_checksum(file.data(), file.bytes()));
}

void Sources::add_text(const TextFiles& text, const Tokenizer& tokenizer, std::uint64_t& room) {
    if (text.skipped > 0)
        log::info("skipped {} file{} that {} empty or not text", text.skipped, plural(text.skipped),
                  text.skipped == 1 ? "is" : "are");
    agree_on_tokenizer(tokenizer.kind(), tokenizer.files(), tokenizer.vocabulary(), text.files.front().path);
    if (tokenizer.tokens_are_bytes() && !text.has_json_lines())
        add_bytes(text);
    else
        add_encoded(text, tokenizer, room);
}

void Sources::add_bytes(const TextFiles& text) {
    std::string run;  // consecutive small files, and the boundaries before large ones
    const std::string* run_path = nullptr;
    const auto end_run = [&] {
        if (run.empty()) return;
        const std::string& kept = buffers_.emplace_back(std::move(run));
        add_segment(reinterpret_cast<const std::byte*>(kept.data()), 1, kept.size(), *run_path);
        run.clear();
    };
    for (std::size_t i = 0; i < text.files.size(); ++i) {
        const TextFile& about = text.files[i];
        if (run.empty()) run_path = &about.path;
        if (i > 0) run += '\0';
        end_document(tokens_ + static_cast<std::int64_t>(run.size()));  // of the file before
        MappedFile file(about.path);
        if (file.bytes() == 0)
            throw usage_error("{} changed while being read; retry when nothing writes to it", about.path);
        add_to_checksum(file.bytes());
        add_to_checksum(ends_checksum(file.data(), file.bytes()));
        if (file.bytes() < small_file) {
            run.append(reinterpret_cast<const char*>(file.data()), file.bytes());
            continue;
        }
        end_run();
        const MappedFile& kept = mapped_files_.emplace_back(std::move(file));
        add_segment(kept.data(), 1, kept.bytes(), about.path);
    }
    end_run();
    end_document(tokens_);
    bytes_ += static_cast<double>(text.bytes());
}

// The text of JSON Lines may be a thousand times what the files have on disk, hence the limit.
void Sources::add_encoded(const TextFiles& text, const Tokenizer& tokenizer, std::uint64_t& room) {
    log::info("{} {} of text; lockstep pack does this once for all runs",
              tokenizer.tokens_are_bytes() ? "reading" : "tokenizing", human_bytes(static_cast<double>(text.bytes())));
    const std::uint64_t room_before = room;
    std::string& tokens = buffers_.emplace_back();
    EncodeOptions options;
    options.title = "tokenizing";
    options.begin_document = [&](std::uint64_t begin) { end_document(tokens_ + static_cast<std::int64_t>(begin)); };
    const EncodeResult result = encode_text(text, tokenizer, options, [&](const void* data, std::size_t bytes) {
        if (text.has_json_lines()) {
            if (bytes > room)
                throw usage_error(
                    "{} and the files after it amount to more than {} of tokens, which every rank would hold in "
                    "memory; pack them first with lockstep pack",
                    text.files.front().path, human_bytes(static_cast<double>(room_before)));
            room -= bytes;
        }
        tokens.append(static_cast<const char*>(data), bytes);
    });
    const std::size_t width = tokenizer.token_width();
    bytes_ += static_cast<double>(result.text_bytes);
    add_to_checksum(result.text_bytes);
    add_to_checksum(hash64(tokens.data(), tokens.size()));
    add_segment(reinterpret_cast<const std::byte*>(tokens.data()), width, tokens.size() / width,
                text.files.front().path);
    end_document(tokens_);
}

void Sources::end_document(std::int64_t end) {
    if (with_document_ends_) add_document_end(document_ends_, end);
}

// `ends` count from the end of the stream so far.
void Sources::end_documents(const std::vector<std::int64_t>& ends) {
    for (const std::int64_t end : ends) end_document(tokens_ + end);
}

void Sources::add_segment(const std::byte* data, std::size_t width, std::uint64_t count, const std::string& path) {
    const std::int64_t end = tokens_ + static_cast<std::int64_t>(count);
    if (names_.empty() || names_.back() != path) names_.push_back(path);
    segments_.push_back({tokens_, end, data, width, &names_.back()});
    tokens_ = end;
}

void Sources::agree_on_tokenizer(const std::string& kind, const TokenizerFiles& files, std::int64_t vocabulary,
                                 const std::string& path) {
    if (first_path_.empty()) {
        first_path_ = path;
        tokenizer_kind_ = kind;
        tokenizer_files_ = files;
        vocabulary_ = vocabulary;
        return;
    }
    if (kind != tokenizer_kind_)
        throw usage_error("{} ({}) and {} ({}) cannot be read together; pack all with the same tokenizer", first_path_,
                          tokenizer_name(tokenizer_kind_), path, tokenizer_name(kind));
    if (kind.empty())
        vocabulary_ = std::max(vocabulary_, vocabulary);
    else if (!same_tokenizer(kind, files, tokenizer_kind_, tokenizer_files_) || vocabulary != vocabulary_)
        throw usage_error(
            "{} and {} were made with different tokenizers (vocabularies {} and {}); pack all with the same one",
            first_path_, path, vocabulary_, vocabulary);
}

void Sources::add_to_checksum(std::uint64_t value) {
    const std::array<std::uint64_t, 2> both = {checksum_, value};
    checksum_ = hash64(both.data(), sizeof both);
}

void Sources::copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
    LOCKSTEP_ASSERT(begin >= 0 && count >= 0 && begin + count <= tokens_);
    auto segment = std::upper_bound(segments_.begin(), segments_.end(), begin,
                                    [](std::int64_t position, const Segment& one) { return position < one.end; });
    for (; count > 0; ++segment) {
        const std::int64_t taken = std::min(count, segment->end - begin);
        const std::byte* data = segment->data + static_cast<std::size_t>(begin - segment->begin) * segment->width;
        const std::uint64_t largest = widen_tokens(data, segment->width, static_cast<std::size_t>(taken), out);
        if (largest >= static_cast<std::uint64_t>(vocabulary_))
            throw damaged_error("{} is damaged: it holds token {}, but its vocabulary is {}", *segment->path, largest,
                                vocabulary_);
        begin += taken;
        count -= taken;
        out += taken;
    }
}

}  // namespace lockstep::data

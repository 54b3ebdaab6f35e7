#include "data/pack.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "base/whole_file.hpp"
#include "data/document_ends.hpp"
#include "data/encode.hpp"
#include "data/megatron_writer.hpp"
#include "data/sentencepiece.hpp"
#include "data/temporary_file.hpp"
#include "data/text_files.hpp"
#include "data/token_file.hpp"
#include "data/tokenizer.hpp"
#include "hdf5/hdf5.hpp"

namespace lockstep::data {
namespace {

constexpr std::int64_t most_pieces = 1'000'000;

// Writes tokens sequentially and computes their checksum.
class TokenWriter {
  public:
    TokenWriter(OpenFile file, std::uint64_t offset) : file_(std::move(file)), offset_(offset) {}
    void take(const void* tokens, std::size_t bytes) {
        file_.write(tokens, bytes, offset_ + written_);
        hasher_.add(tokens, bytes);
        written_ += bytes;
    }
    const OpenFile& file() const { return file_; }
    std::uint64_t written() const { return written_; }
    std::uint64_t checksum() const { return hasher_.digest(); }

  private:
    OpenFile file_;
    Hasher hasher_;
    std::uint64_t offset_, written_ = 0;
};

// The files that are written.
std::vector<std::string> files_of(const PackOptions& options) {
    const std::string& out = options.out;
    if (out.empty()) throw usage_error("--out needs a file name");
    if (options.format == PackFormat::lockstep) return {out};
    if (out.ends_with('/')) throw usage_error("--out {} is a folder; give the common prefix of its two files", out);
    if (out.ends_with(".bin") || out.ends_with(".idx"))
        throw usage_error("--out {}: for Megatron-LM, give the common prefix of its two files: {}", out,
                          out.substr(0, out.size() - 4));
    return {out + ".bin", out + ".idx"};
}

void check_out(const std::string& out) {
    std::error_code problem;
    if (std::filesystem::is_directory(out, problem)) throw usage_error("--out {} is a folder; name a file", out);
    if (std::filesystem::exists(out, problem) && !std::filesystem::is_regular_file(out, problem))
        throw usage_error("--out {} is not a regular file", out);
    const std::filesystem::path folder = std::filesystem::path(out).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder, problem))
        throw usage_error("--out {}: the folder {} does not exist", out, folder.string());
}

void check_not_replaced(const TextFiles& text, const std::string& out) {
    std::error_code problem;
    if (!std::filesystem::exists(out, problem)) return;
    for (const auto& file : text.files)
        if (std::filesystem::equivalent(file.path, out, problem))
            throw usage_error("--out {} is one of the input files; name another file", out);
}

std::shared_ptr<const Tokenizer> choose_tokenizer(const PackOptions& options, const TextFiles& text) {
    if (options.kept_tokenizer) return options.kept_tokenizer;
    if (options.train_tokenizer == 0) return open_tokenizer(options.tokenizer);
    log::info("training a tokenizer with {} pieces", options.train_tokenizer);
    return make_tokenizer("sentencepiece", {{sentencepiece_file_name,
                                             train_sentencepiece(text, options.train_tokenizer, options.progress)}});
}

hdf5::ElementType element_type(std::size_t width) {
    return width == 1 ? hdf5::ElementType::uint8 : width == 2 ? hdf5::ElementType::uint16 : hdf5::ElementType::uint32;
}

// Everything but the tokens and their checksum, which go to the returned offset.
std::uint64_t lay_out(hdf5::File& file, const Tokenizer& tokenizer, std::uint64_t tokens) {
    file.write_attribute("/", "format", std::string("lockstep-tokens"));
    file.write_attribute("/", "format_version",
                         tokenizer.files().empty() ? first_token_file_version : newest_token_file_version);
    file.write_attribute("/", "program_version", std::string(version()) + " (" + commit() + ")");
    file.write_attribute("/", "tokenizer_kind", tokenizer.kind());
    file.write_attribute("/", "vocabulary", tokenizer.vocabulary());
    file.write_attribute("/", "token_count", static_cast<std::int64_t>(tokens));
    for (const auto& one : tokenizer.files()) {
        const std::string path = tokenizer_file_path(one.name);
        file.write_text(path, one.contents);
        file.write_attribute(path, "checksum", hash_text(hash64(one.contents.data(), one.contents.size())));
    }
    file.create_dataset("tokens", element_type(tokenizer.token_width()), {tokens});
    return file.info("tokens").offset;
}

// The ends bypass HDF5, which would copy them until the file is closed.
void write_document_ends(hdf5::File& file, const OpenFile& out, const std::vector<std::int64_t>& ends) {
    const std::size_t bytes = ends.size() * sizeof ends[0];
    file.create_dataset(document_ends_path, hdf5::ElementType::int64, {ends.size()});
    file.write_attribute(document_ends_path, "checksum", hash_text(hash64(ends.data(), bytes)));
    out.write(ends.data(), bytes, file.info(document_ends_path).offset);
}

void finish(hdf5::File& file, const PackResult& result) {
    file.write_attribute("/", "document_count", result.documents);
    file.write_attribute("/", "byte_count", result.bytes);
    file.write_attribute("/", "byte_entropy", result.byte_entropy);
    file.write_attribute("/", "conditional_entropy", result.conditional_entropy);
    file.write_attribute("/", "checksum", hash_text(result.checksum));
    file.close();
}

void copy_tokens(const OpenFile& from, TokenWriter& to, std::uint64_t bytes) {
    std::string part;
    for (std::uint64_t done = 0; done < bytes; done += part.size()) {
        part.resize(static_cast<std::size_t>(std::min<std::uint64_t>(bytes - done, 8 << 20)));
        from.read(part.data(), part.size(), done);
        to.take(part.data(), part.size());
    }
}

// What writing needs and finds out.
struct Packing {
    const PackOptions& options;
    const TextFiles& text;
    const Tokenizer& tokenizer;
    ByteStatistics statistics{};
    PackResult result{};

    void encode(const std::function<void(const void*, std::size_t)>& take,
                const std::function<void(std::uint64_t)>& begin_document = {}) {
        EncodeOptions encoding;
        encoding.batch_bytes = options.batch_bytes;
        encoding.progress = options.progress;
        encoding.statistics = &statistics;
        encoding.begin_document = begin_document;
        const EncodeResult encoded = encode_text(text, tokenizer, encoding, take);
        result.bytes = static_cast<std::int64_t>(encoded.text_bytes);
        result.documents = encoded.documents;
        result.empty_documents = encoded.empty_documents;
        result.byte_entropy = statistics.entropy();
        result.conditional_entropy = statistics.conditional_entropy();
    }
    // In the folder of the result.
    std::string unfinished(const std::string& ending) const {
        return fmt::format("{}.{}-{}{}.tmp", options.out, host_name(), ::getpid(), ending);
    }
};

void write_token_file(Packing& packing) {
    const TemporaryFile temporary(packing.unfinished("")), spool(packing.unfinished(".tokens"));
    std::vector<std::int64_t> ends;
    const auto encode_into = [&](TokenWriter& writer) {
        packing.encode([&](const void* tokens, std::size_t bytes) { writer.take(tokens, bytes); },
                       [&](std::uint64_t begin) { add_document_end(ends, static_cast<std::int64_t>(begin)); });
    };
    const std::size_t width = packing.tokenizer.token_width();
    std::unique_ptr<TokenWriter> spooled;
    std::uint64_t tokens = packing.text.bytes() + packing.text.files.size() - 1;
    if (!packing.tokenizer.tokens_are_bytes() || packing.text.has_json_lines()) {
        // The number of tokens, needed for the dataset's size, is known only after tokenizing all.
        spooled = std::make_unique<TokenWriter>(OpenFile::create(spool.path()), 0);
        encode_into(*spooled);
        tokens = spooled->written() / width;
        if (tokens == 0) throw usage_error("the tokenizer produced no tokens; is the text all spaces?");
    }
    hdf5::File file = hdf5::File::create(temporary.path());
    // HDF5 never writes this dataset: it is allocated early and never filled.
    TokenWriter writer(OpenFile::for_writing(temporary.path()), lay_out(file, packing.tokenizer, tokens));
    writer.file().reserve(tokens * width, file.info("tokens").offset);
    if (spooled)
        copy_tokens(spooled->file(), writer, spooled->written());
    else
        encode_into(writer);
    LOCKSTEP_ASSERT(writer.written() == tokens * width);

    packing.result.tokens = static_cast<std::int64_t>(tokens);
    packing.result.checksum = writer.checksum();
    add_document_end(ends, packing.result.tokens);
    write_document_ends(file, writer.file(), ends);
    finish(file, packing.result);
    writer.file().sync();
    rename_file(temporary.path(), packing.options.out);
}

// Each document is a sequence that ends in the tokenizer's boundary token, as Megatron's --append-eod makes them.
void write_megatron(Packing& packing) {
    const TemporaryFile bin(packing.unfinished(".bin")), idx(packing.unfinished(".idx"));
    const std::size_t width = packing.tokenizer.token_width();
    MegatronWriter writer(bin.path(), idx.path(), width, packing.tokenizer.vocabulary());
    packing.encode([&](const void* tokens, std::size_t bytes) { writer.take(tokens, bytes); },
                   [&](std::uint64_t position) { writer.begin_document(position); });
    if (writer.tokens() == 0) throw usage_error("the tokenizer produced no tokens; is the text all spaces?");
    const std::int32_t boundary = packing.tokenizer.boundary();
    if (boundary >= 0)
        writer.take(&boundary, width);  // little-endian: the low bytes come first
    else
        log::warning("the tokenizer has no end-of-text token: document ends are not marked");
    writer.finish();
    packing.result.tokens = static_cast<std::int64_t>(writer.tokens());
    packing.result.checksum = writer.checksum();
    // Whatever ends the program in between leaves an index without tokens, which is refused. Tokens without their index
    // would pass for raw uint16, and old ones beside a new index for this text's.
    std::error_code problem;
    std::filesystem::remove(packing.options.out + ".bin", problem);
    if (problem) throw fault_error("{}.bin cannot be removed: {}", packing.options.out, problem.message());
    rename_file(idx.path(), packing.options.out + ".idx");
    rename_file(bin.path(), packing.options.out + ".bin");
}

}  // namespace

PackResult pack(const PackOptions& options) {
    if (options.train_tokenizer != 0 && (options.tokenizer != "bytes" || options.kept_tokenizer))
        throw usage_error("--tokenizer {} and --train-tokenizer are mutually exclusive; give one", options.tokenizer);
    if (options.train_tokenizer < 0 || options.train_tokenizer > most_pieces)
        throw usage_error("--train-tokenizer {} must be between 1 and {}", options.train_tokenizer, most_pieces);
    const std::vector<std::string> outs = files_of(options);
    for (const std::string& out : outs) check_out(out);
    const TextFiles text = collect_text_files(options.paths, options.jsonl_field);
    for (const std::string& out : outs) check_not_replaced(text, out);
    const auto tokenizer = choose_tokenizer(options, text);

    Packing packing{options, text, *tokenizer};
    packing.result.files = static_cast<std::int64_t>(text.files.size());
    packing.result.skipped_files = text.skipped;
    packing.result.vocabulary = tokenizer->vocabulary();
    if (options.format == PackFormat::megatron)
        write_megatron(packing);
    else
        write_token_file(packing);
    sync_folder(std::filesystem::path(options.out).parent_path().string());
    return packing.result;
}

}  // namespace lockstep::data

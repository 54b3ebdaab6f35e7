#include "data/text_files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/utf8.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t looked_at = 65536;  // leading bytes that decide whether a file is text
constexpr std::size_t longest_span = 65536;

using FolderIdentity = std::pair<dev_t, ino_t>;

bool is_text(const std::string& path) {
    if (is_json_lines(path, false)) return true;
    const OpenFile file = OpenFile::for_reading(path);
    std::array<char, looked_at> start;
    const std::size_t bytes = file.read_up_to(start.data(), start.size(), 0);
    return std::memchr(start.data(), '\0', bytes) == nullptr;
}

struct Walk {
    std::string folder;
    std::set<FolderIdentity> entered;
    std::vector<TextFile> candidates;  // relative to `folder`
    std::int64_t skipped = 0;

    void enter(const std::string& inside) {
        const std::string path = inside.empty() ? folder : folder + "/" + inside;
        std::error_code problem;
        std::vector<std::string> names;
        for (std::filesystem::directory_iterator entry(path, problem), end; !problem && entry != end;
             entry.increment(problem))
            names.push_back(entry->path().filename().native());
        if (problem) throw usage_error("the folder {} cannot be read: {}", path, problem.message());
        // The order determines under which name a folder with several links is read.
        std::sort(names.begin(), names.end());
        for (const auto& name : names)
            if (name.front() != '.') visit(inside.empty() ? name : inside + "/" + name);
    }

    void visit(const std::string& inside) {
        struct stat about {};
        if (::stat((folder + "/" + inside).c_str(), &about) != 0) {
            if (errno != ENOENT && errno != ELOOP)
                throw usage_error("{}/{} cannot be read: {}", folder, inside, system_error_text());
            ++skipped;  // a dangling link
        } else if (S_ISDIR(about.st_mode)) {
            if (entered.insert({about.st_dev, about.st_ino}).second) enter(inside);
        } else if (S_ISREG(about.st_mode) && about.st_size > 0) {
            candidates.push_back({inside, static_cast<std::uint64_t>(about.st_size), is_json_lines(inside, false)});
        } else {
            ++skipped;
        }
    }
};

Walk walk_through(const std::string& folder, const struct stat& about) {
    Walk walk;
    walk.folder = folder;
    while (walk.folder.size() > 1 && walk.folder.back() == '/') walk.folder.pop_back();
    walk.entered.insert({about.st_dev, about.st_ino});
    walk.enter("");
    std::sort(walk.candidates.begin(), walk.candidates.end(),
              [](const TextFile& a, const TextFile& b) { return a.path < b.path; });
    return walk;
}

void collect_folder(const std::string& folder, const struct stat& about, TextFiles& text) {
    Walk walk = walk_through(folder, about);
    const std::size_t before = text.files.size();
    for (const auto& candidate : walk.candidates) {
        std::string path = walk.folder + "/" + candidate.path;
        if (is_text(path))
            text.files.push_back({std::move(path), candidate.bytes, candidate.json_lines});
        else
            ++walk.skipped;
    }
    if (text.files.size() == before)
        throw usage_error("the folder {} has no text files ({} other{}); name text files, or folders that contain some",
                          folder, walk.skipped, plural(walk.skipped));
    text.skipped += walk.skipped;
}

}  // namespace

std::uint64_t TextFiles::bytes() const {
    std::uint64_t sum = 0;
    for (const auto& file : files) sum += file.bytes;
    return sum;
}

bool TextFiles::has_json_lines() const {
    return std::any_of(files.begin(), files.end(), [](const TextFile& file) { return file.json_lines; });
}

bool has_text_files(const std::string& folder) {
    struct stat about {};
    if (::stat(folder.c_str(), &about) != 0) throw usage_error("{} cannot be read: {}", folder, system_error_text());
    const Walk walk = walk_through(folder, about);
    return std::any_of(walk.candidates.begin(), walk.candidates.end(),
                       [&](const TextFile& file) { return is_text(walk.folder + "/" + file.path); });
}

TextFiles collect_text_files(const std::vector<std::string>& paths, const std::string& field) {
    TextFiles text;
    text.field = field;
    for (const auto& path : paths) {
        struct stat about {};
        if (::stat(path.c_str(), &about) != 0) {
            if (errno == ENOENT || errno == ENOTDIR) throw usage_error("{} does not exist", path);
            throw usage_error("{} cannot be read: {}", path, system_error_text());
        }
        if (S_ISDIR(about.st_mode)) {
            collect_folder(path, about, text);
        } else if (!S_ISREG(about.st_mode)) {
            throw usage_error("{} is neither a file nor a folder", path);
        } else if (about.st_size == 0) {
            ++text.skipped;
        } else if (const bool lines = is_json_lines(path, true); lines || is_text(path)) {
            text.files.push_back({path, static_cast<std::uint64_t>(about.st_size), lines});
        } else {
            throw usage_error("{} is not text: it has a NUL byte in its first 64 KiB", path);
        }
    }
    if (text.files.empty())
        throw usage_error("no text: {}", paths.empty() ? "no path given" : paths.front() + " is empty");
    return text;
}

bool TextReader::next(TextBatch& batch) {
    batch.bytes = std::exchange(carried_, std::string());
    batch.spans.clear();
    span_begin_ = 0;
    while ((batch.spans.empty() || batch.bytes.size() < batch_bytes_) && begin_document(batch)) {
        read_more(batch);
        cut_spans(batch);
        if (document_complete_) end_document();
    }
    carried_.assign(batch.bytes, span_begin_);
    batch.bytes.resize(span_begin_);
    if (batch.spans.empty() && documents_ == 0)
        throw usage_error("no text: {} has only empty documents", text_.files.front().path);
    return !batch.spans.empty();
}

std::uint64_t TextReader::consumed() const {
    return done_files_ + (lines_ ? lines_->consumed() : offset_);
}

// False: there is none left.
bool TextReader::begin_document(TextBatch& batch) {
    if (in_document_) return true;
    for (; file_ < text_.files.size(); ++file_) {
        const TextFile& file = text_.files[file_];
        if (!file.json_lines) break;
        if (!lines_) lines_.emplace(file.path, text_.field);
        if (lines_->next(line_)) break;
        empty_documents_ += lines_->empty();
        lines_.reset();
        done_files_ += file.bytes;
    }
    if (file_ == text_.files.size()) return false;
    if (documents_++ > 0) batch.bytes += '\0';
    span_begin_ = batch.bytes.size();
    in_document_ = span_starts_document_ = true;
    return true;
}

void TextReader::end_document() {
    in_document_ = document_complete_ = false;
    if (lines_) return;
    open_.close();
    offset_ = 0;
    done_files_ += text_.files[file_++].bytes;
}

void TextReader::read_more(TextBatch& batch) {
    const std::size_t before = batch.bytes.size();
    if (lines_) {
        batch.bytes += line_;
        document_complete_ = true;
    } else {
        read_file(text_.files[file_], batch);
    }
    text_bytes_ += batch.bytes.size() - before;
}

void TextReader::read_file(const TextFile& file, TextBatch& batch) {
    if (!open_.is_open()) open_ = OpenFile::for_reading(file.path);
    // One byte beyond the maximum length, so that at least one is cut.
    const std::uint64_t room = std::max(batch_bytes_, batch.bytes.size() + longest_span + 1) - batch.bytes.size();
    const auto wanted = static_cast<std::size_t>(std::min(room, file.bytes - offset_));
    const std::size_t before = batch.bytes.size();
    batch.bytes.resize(before + wanted);
    char beyond = 0;
    const bool ends_early = open_.read_up_to(batch.bytes.data() + before, wanted, offset_) < wanted;
    offset_ += wanted;
    document_complete_ = offset_ == file.bytes;
    if (ends_early || (document_complete_ && open_.read_up_to(&beyond, 1, offset_) > 0))
        throw usage_error("{} changed while being read; retry when nothing writes to it", file.path);
}

void TextReader::cut_spans(TextBatch& batch) {
    const char* bytes = batch.bytes.data();
    const std::size_t end = batch.bytes.size();
    while (span_begin_ < end) {
        std::size_t span_end = end;
        if (end - span_begin_ > longest_span) {
            span_end = span_begin_ + longest_span;
            const void* newline = ::memrchr(bytes + span_begin_ + 1, '\n', longest_span - 1);
            if (newline) {
                span_end = static_cast<std::size_t>(static_cast<const char*>(newline) - bytes);
            } else {
                // No newline: at a character boundary.
                span_end = span_begin_ + whole_characters({bytes + span_begin_, longest_span});
            }
        } else if (!document_complete_) {
            break;
        }
        batch.spans.push_back({span_begin_, span_end, std::exchange(span_starts_document_, false)});
        span_begin_ = span_end;
    }
}

}  // namespace lockstep::data

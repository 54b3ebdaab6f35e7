#include "data/encode.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "data/encode_in_parts.hpp"
#include "device/parallel.hpp"

namespace lockstep::data {
namespace {

std::string encode_span(const Tokenizer& tokenizer, const TextBatch& batch, const TextSpan& span, bool first_of_all,
                        std::size_t width) {
    const std::string_view text = std::string_view(batch.bytes).substr(span.begin, span.end - span.begin);
    std::string out;
    if (span.starts_document && !first_of_all && tokenizer.boundary() >= 0)
        append_tokens({tokenizer.boundary()}, width, out);
    append_tokens(span.starts_document ? tokenizer.encode(text) : tokenizer.encode_continued(text), width, out);
    return out;
}

double negative_log_sum(std::uint64_t count, std::uint64_t total) {
    if (count == 0) return 0;
    return static_cast<double>(count) * std::log(static_cast<double>(total) / static_cast<double>(count));
}

}  // namespace

void append_tokens(const std::vector<std::int32_t>& tokens, std::size_t width, std::string& out) {
    for (const auto token : tokens) {
        std::array<char, sizeof token> bytes;
        std::memcpy(bytes.data(), &token, sizeof token);
        out.append(bytes.data(), width);
    }
}

std::string progress_text(double done_bytes, double total_bytes, double bytes_per_second) {
    constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t unit = 0;
    double size = 1;
    while (total_bytes >= 10 * 1024 * size && unit + 1 < units.size()) size *= 1024, ++unit;
    const double rate = bytes_per_second / size;
    return fmt::format("{} of {} {} ({:.0f} %), {} {}/s, {} left", with_commas(std::llround(done_bytes / size)),
                       with_commas(std::llround(total_bytes / size)), units[unit], 100 * done_bytes / total_bytes,
                       rate < 10 ? fmt::format("{:.2g}", rate) : with_commas(std::llround(rate)), units[unit],
                       human_seconds(std::max(0.0, total_bytes - done_bytes) / bytes_per_second));
}

Progress::Progress(std::string title, std::uint64_t total_bytes, bool shown)
    : title_(std::move(title)),
      total_(total_bytes),
      shown_(shown && log::on_terminal()),
      begun_(seconds_now()),
      last_shown_(begun_) {}

Progress::~Progress() {
    if (shown_) log::status_line("");
}

void Progress::show(std::uint64_t done_bytes) {
    const double now = seconds_now();
    if (!shown_ || now - last_shown_ < 0.25 || done_bytes == 0) return;
    last_shown_ = now;
    const double done = static_cast<double>(done_bytes);
    log::status_line(title_ + ": " + progress_text(done, static_cast<double>(total_), done / (now - begun_)));
}

void ByteStatistics::add(std::string_view bytes) {
    if (bytes.empty()) return;
    if (total_ == 0) first_ = static_cast<unsigned char>(bytes.front());
    const bool has_before = total_ > 0;
    std::vector<std::vector<std::uint64_t>> parts(static_cast<std::size_t>(threads()));
    parallel_for(static_cast<std::int64_t>(bytes.size()), 1 << 20,
                 [&](std::int64_t first, std::int64_t last, int thread) {
                     auto& counts = parts[static_cast<std::size_t>(thread)];
                     counts.assign(pairs_.size(), 0);
                     const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
                     if (first == 0 && !has_before) first = 1;
                     std::size_t before = first == 0 ? last_ : data[first - 1];
                     for (std::int64_t i = first; i < last; ++i) {
                         ++counts[before * 256 + data[i]];
                         before = data[i];
                     }
                 });
    for (const auto& counts : parts)
        for (std::size_t i = 0; i < counts.size(); ++i) pairs_[i] += counts[i];
    total_ += bytes.size();
    last_ = static_cast<unsigned char>(bytes.back());
}

double ByteStatistics::entropy() const {
    if (total_ == 0) return 0;
    std::array<std::uint64_t, 256> counts{};
    counts[first_] = 1;
    for (std::size_t i = 0; i < pairs_.size(); ++i) counts[i % 256] += pairs_[i];
    double sum = 0;
    for (const auto count : counts) sum += negative_log_sum(count, total_);
    return sum / static_cast<double>(total_);
}

double ByteStatistics::conditional_entropy() const {
    if (total_ < 2) return 0;
    double sum = 0;
    for (std::size_t before = 0; before < 256; ++before) {
        std::uint64_t total = 0;
        for (std::size_t byte = 0; byte < 256; ++byte) total += pairs_[before * 256 + byte];
        for (std::size_t byte = 0; byte < 256; ++byte) sum += negative_log_sum(pairs_[before * 256 + byte], total);
    }
    return sum / static_cast<double>(total_ - 1);
}

EncodeResult encode_text(const TextFiles& text, const Tokenizer& tokenizer, const EncodeOptions& options,
                         const std::function<void(const void* tokens, std::size_t bytes)>& take) {
    if (tokenizer.parts()) return encode_in_parts(text, tokenizer, options, take);
    const bool as_they_are = tokenizer.tokens_are_bytes();  // with the boundaries between documents
    const std::size_t width = tokenizer.token_width();
    Progress progress(options.title, text.bytes(), options.progress);
    TextReader reader(text, options.batch_bytes);
    TextBatch batch;
    std::vector<std::string> encoded;
    std::uint64_t position = 0;  // in the stream of tokens
    std::uint64_t read_before = 0;
    bool first_of_all = true;
    const auto begin_document = [&](const TextSpan& span, std::uint64_t at) {
        if (span.starts_document && options.begin_document) options.begin_document(at);
    };
    while (reader.next(batch)) {
        if (options.statistics) options.statistics->add(batch.bytes);
        if (as_they_are) {
            for (const TextSpan& span : batch.spans) begin_document(span, position + span.begin);
            position += batch.bytes.size();
            take(batch.bytes.data(), batch.bytes.size());
        } else {
            encoded.assign(batch.spans.size(), std::string());
            // A few megabytes at a time, so that a slow tokenizer shows progress.
            const std::size_t group = 16 * static_cast<std::size_t>(threads());
            for (std::size_t begin = 0; begin < batch.spans.size(); begin += group) {
                const std::size_t end = std::min(batch.spans.size(), begin + group);
                parallel_for(
                    static_cast<std::int64_t>(end - begin), 1, [&](std::int64_t first, std::int64_t last, int) {
                        for (auto i = begin + static_cast<std::size_t>(first);
                             i < begin + static_cast<std::size_t>(last); ++i)
                            encoded[i] = encode_span(tokenizer, batch, batch.spans[i], first_of_all && i == 0, width);
                    });
                for (std::size_t i = begin; i < end; ++i) {
                    const bool after_boundary = tokenizer.boundary() >= 0 && !(first_of_all && i == 0);
                    begin_document(batch.spans[i], position + (after_boundary ? 1 : 0));
                    position += encoded[i].size() / width;
                    take(encoded[i].data(), encoded[i].size());
                    encoded[i] = std::string();
                }
                // The batch's share of what was read for it, which may have been compressed.
                const double share =
                    static_cast<double>(batch.spans[end - 1].end) / static_cast<double>(batch.bytes.size());
                const auto read = static_cast<double>(reader.consumed() - read_before);
                progress.show(read_before + static_cast<std::uint64_t>(share * read));
            }
        }
        first_of_all = false;
        read_before = reader.consumed();
        progress.show(read_before);
    }
    return {reader.text_bytes(), reader.documents(), reader.empty_documents()};
}

}  // namespace lockstep::data

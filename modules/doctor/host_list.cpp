#include "doctor/host_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "base/error.hpp"
#include "base/whole_file.hpp"

namespace lockstep::doctor {
namespace {

constexpr std::size_t most_digits = 18;  // fit 64 bits

struct Name {
    std::string before, after;  // what stands around the number
    std::string digits;         // of the last number in the first label; "": none
};

bool is_digit(char letter) {
    return letter >= '0' && letter <= '9';
}

Name parts_of(const std::string& host) {
    std::size_t end = std::min(host.find('.'), host.size());
    while (end > 0 && !is_digit(host[end - 1])) --end;
    std::size_t begin = end;
    while (begin > 0 && end - begin < most_digits && is_digit(host[begin - 1])) --begin;
    if (begin == end) return {host, "", ""};
    return {host.substr(0, begin), host.substr(end), host.substr(begin, end - begin)};
}

// Numbers of one series are written with so many digits; 0: each as short as it is.
using Series = std::tuple<std::string, std::string, std::size_t>;

}  // namespace

std::string host_list(const std::vector<std::string>& hosts) {
    std::set<Series> padded;
    for (const std::string& host : hosts)
        if (const Name name = parts_of(host); name.digits.size() > 1 && name.digits.front() == '0')
            padded.insert({name.before, name.after, name.digits.size()});
    std::map<Series, std::set<long long>> series;
    std::set<std::string> plain;
    for (const std::string& host : hosts) {
        const Name name = parts_of(host);
        Series of{name.before, name.after, name.digits.size()};
        if (!padded.contains(of)) std::get<2>(of) = 0;
        if (name.digits.empty())
            plain.insert(host);
        else
            series[of].insert(std::stoll(name.digits));
    }
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ",") + part; };
    for (const std::string& host : plain) add(host);
    for (const auto& [of, numbers] : series) {
        const auto& [before, after, width] = of;
        std::string ranges;
        for (auto first = numbers.begin(); first != numbers.end();) {
            auto last = first;
            while (std::next(last) != numbers.end() && *std::next(last) == *last + 1) ++last;
            ranges += fmt::format("{}{:0{}}", ranges.empty() ? "" : ",", *first, width);
            if (last != first) ranges += fmt::format("-{:0{}}", *last, width);
            first = std::next(last);
        }
        add(numbers.size() == 1 ? before + ranges + after : before + "[" + ranges + "]" + after);
    }
    return text;
}

std::vector<std::string> read_host_list(const std::string& path) {
    std::istringstream lines(read_text_file(path));
    std::vector<std::string> hosts;
    std::int64_t number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        std::istringstream words(line.substr(0, line.find('#')));
        std::string host;
        if (!(words >> host)) continue;
        host = host.substr(0, host.find(':'));  // "host:4", as MPICH's host files have it
        const bool is_name =
            std::all_of(host.begin(), host.end(), [](unsigned char letter) { return letter > ' ' && letter < 0x7f; });
        if (host.empty() || !is_name)
            throw usage_error("--nodes-file {}: line {} does not begin with a host", path, number);
        hosts.push_back(host);
    }
    if (hosts.empty()) throw usage_error("--nodes-file {} names no host; write one per line", path);
    return hosts;
}

}  // namespace lockstep::doctor

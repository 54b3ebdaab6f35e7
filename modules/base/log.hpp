// The log: to stderr (level LOCKSTEP_LOG=debug,detail,info,warning,error; default info), and to a file once a run has a
// folder, which always has details. Any rank may warn, with its rank as prefix; only rank 0 logs info.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace lockstep::log {

enum class Level { debug, detail, info, warning, error };

void set_rank(int rank);
void show_from(Level level);             // on stderr, whatever LOCKSTEP_LOG says
void add_file(const std::string& path);  // appends; rank 0 only
void write(Level level, std::string_view sentence);
// A line on stderr that the next one overwrites; only on terminals, on rank 0. "" clears it.
void status_line(std::string_view text);
bool on_terminal();

template <class... Arguments>
void debug(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    write(Level::debug, fmt::format(format, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void detail(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    write(Level::detail, fmt::format(format, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    write(Level::info, fmt::format(format, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void warning(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    write(Level::warning, fmt::format(format, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    write(Level::error, fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace lockstep::log

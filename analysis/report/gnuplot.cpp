#include "analysis/report/gnuplot.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "analysis/report/colours.hpp"
#include "analysis/report/text.hpp"
#include "analysis/report/tics.hpp"
#include "base/error.hpp"

namespace lockstep::analysis {
namespace {

// An anonymous file in memory: unlike a pipe it cannot fill up, and nothing is left behind.
class MemoryFile {
  public:
    MemoryFile() : descriptor_(::memfd_create("lockstep-analyze", MFD_CLOEXEC)) {
        if (descriptor_ < 0) throw fault_error("no memory for gnuplot's input: {}", system_error_text());
    }
    ~MemoryFile() { ::close(descriptor_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;
    int descriptor() const { return descriptor_; }
    void write(std::string_view text) const {
        while (!text.empty()) {
            const ssize_t written = ::write(descriptor_, text.data(), text.size());
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) throw fault_error("cannot buffer gnuplot's input: {}", system_error_text());
            text.remove_prefix(static_cast<std::size_t>(written));
        }
        if (::lseek(descriptor_, 0, SEEK_SET) != 0)
            throw fault_error("cannot buffer gnuplot's input: {}", system_error_text());
    }
    std::string read() const {
        std::string text;
        std::array<char, 65536> buffer{};
        while (true) {
            const ssize_t got = ::pread(descriptor_, buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) throw fault_error("gnuplot's output cannot be read: {}", system_error_text());
            if (got == 0) return text;
            text.append(buffer.data(), static_cast<std::size_t>(got));
        }
    }

  private:
    int descriptor_;
};

struct FileActions {
    posix_spawn_file_actions_t value{};
    FileActions() {
        if (::posix_spawn_file_actions_init(&value) != 0)
            throw fault_error("gnuplot cannot be started: {}", system_error_text());
    }
    ~FileActions() { ::posix_spawn_file_actions_destroy(&value); }
    FileActions(const FileActions&) = delete;
    FileActions& operator=(const FileActions&) = delete;
    void connect(const MemoryFile& file, int to) {
        if (::posix_spawn_file_actions_adddup2(&value, file.descriptor(), to) != 0)
            throw fault_error("gnuplot cannot be started: {}", system_error_text());
    }
};

std::string one_line(std::string words) {
    words = clean_text(words);
    std::string line;
    for (const char letter : words)
        if (letter != ' ' || (!line.empty() && line.back() != ' ')) line += letter;
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return line.substr(0, 600);
}

struct Output {
    std::string svg, errors;
};

Output run_gnuplot(const std::string& script, const std::string& plot) {
    const MemoryFile input, output, errors;
    input.write(script);
    FileActions actions;
    actions.connect(input, STDIN_FILENO);
    actions.connect(output, STDOUT_FILENO);
    actions.connect(errors, STDERR_FILENO);
    // Ignore the user's settings (-d), so that the report looks the same everywhere.
    std::string name = "gnuplot", defaults = "-d";
    char* arguments[] = {name.data(), defaults.data(), nullptr};
    pid_t process = 0;
    const int problem = ::posix_spawnp(&process, "gnuplot", &actions.value, nullptr, arguments, environ);
    if (problem != 0) {
        errno = problem;
        throw fault_error("gnuplot cannot be started: {}", system_error_text());
    }
    int status = 0;
    while (::waitpid(process, &status, 0) < 0)
        if (errno != EINTR) throw fault_error("cannot wait for gnuplot: {}", system_error_text());
    if (WIFSIGNALED(status))
        throw fault_error("gnuplot was killed by signal {} while drawing the plot {}", WTERMSIG(status), plot);
    std::string svg = output.read();
    if (WEXITSTATUS(status) != 0 || svg.find("</svg>") == std::string::npos) {
        const std::string words = one_line(errors.read());
        throw fault_error("gnuplot failed (exit code {}) on the plot {}: {}", WEXITSTATUS(status), plot,
                          words.empty() ? "no message" : words);
    }
    return {svg, errors.read()};
}

// Where it is drawn, and how far the axes are from its edges.
// A file has white paper; a page has its own.
std::string terminal(const Plot& plot, int height, int legend, const char* paper) {
    return fmt::format(
        "set encoding utf8\n"
        "set terminal svg size {},{} dynamic noenhanced font 'sans-serif,{}'{}\n"
        "set tmargin at screen {:.5f}\nset bmargin at screen {:.5f}\nset rmargin at screen {:.5f}\n",
        plot.width, height, font_size, paper, 1 - static_cast<double>(space_above) / height,
        static_cast<double>(space_below + legend) / height, 1 - static_cast<double>(space_right) / plot.width);
}

constexpr const char* area_mark = "area:";

// What `ask_area` makes gnuplot say, in pixels from the bottom.
Area area_of(const std::string& words, const Plot& plot) {
    Area area;
    const std::size_t at = words.find(area_mark);
    if (at == std::string::npos) return area;
    std::istringstream numbers(words.substr(at + std::string_view(area_mark).size()));
    numbers >> area.left >> area.right >> area.bottom >> area.top >> area.x_low >> area.x_high >> area.y_low >>
        area.y_high;
    if (!numbers) return {};
    area.bottom = plot.height - area.bottom;
    area.top = plot.height - area.top;
    // gnuplot's variables give the base of a linear axis, too. No name of a run begins a line.
    area.x_logarithmic = plot.script.find("\nset logscale x") != std::string::npos;
    area.y_logarithmic = plot.script.find("\nset logscale y") != std::string::npos;
    return area;
}

std::string ask_area() {
    return fmt::format(
        "print '{}', GPVAL_TERM_XMIN, GPVAL_TERM_XMAX, GPVAL_TERM_YMIN, GPVAL_TERM_YMAX, GPVAL_X_MIN, GPVAL_X_MAX, "
        "GPVAL_Y_MIN, GPVAL_Y_MAX\n",
        area_mark);
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
        text.replace(at, what.size(), with);
}

void remove_elements(std::string& text, const std::string& name) {
    const std::string open = "<" + name + ">", close = "</" + name + ">";
    for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
        const std::size_t end = text.find(close, at);
        if (end == std::string::npos) return;
        text.erase(at, end + close.size() - at);
    }
}

// gnuplot defines every point shape and two filters; drop those that are not used.
void remove_unused_definitions(std::string& svg, const std::string& body, const std::string& prefix) {
    for (const std::string name : {"textbox", "greybox"}) {
        if (body.find(fmt::format("#{}{}", prefix, name)) != std::string::npos) continue;
        const std::size_t at = svg.find(fmt::format("<filter id='{}{}'", prefix, name));
        const std::size_t end = at == std::string::npos ? at : svg.find("</filter>", at);
        if (end != std::string::npos) svg.erase(at, end + std::string_view("</filter>").size() - at);
    }
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream stream(path, std::ios::binary | std::ios::trunc);
    stream << text;
    stream.close();
    if (!stream) throw fault_error("{} cannot be written: {}", path, system_error_text());
}

}  // namespace

bool gnuplot_found() {
    const char* path = std::getenv("PATH");
    if (!path) return false;
    std::string_view folders = path;
    while (true) {
        const std::size_t end = folders.find(':');
        const std::string program = std::string(folders.substr(0, end)) + "/gnuplot";
        std::error_code ignored;
        if (std::filesystem::is_regular_file(program, ignored) && ::access(program.c_str(), X_OK) == 0) return true;
        if (end == std::string_view::npos) return false;
        folders.remove_prefix(end + 1);
    }
}

Drawing draw(const Plot& plot) {
    const Output output = run_gnuplot(terminal(plot, plot.height, 0, "") + "unset key\n$rows << END_OF_ROWS\n" +
                                          data_text(plot) + "END_OF_ROWS\ndata = '$rows'\n" + plot.script + ask_area(),
                                      plot.name);
    return {output.svg, area_of(output.errors, plot)};
}

std::string inline_svg(const std::string& svg, const Plot& plot) {
    const std::string prefix = plot.name + "-";
    const std::size_t root = svg.find("<svg"), begin = svg.find('>', root);
    if (root == std::string::npos || begin == std::string::npos)
        throw fault_error("gnuplot's output for the plot {} is not an SVG", plot.name);
    std::string body = svg.substr(begin + 1);
    remove_elements(body, "title");
    remove_elements(body, "desc");
    replace_all(body, "xlink:href=", "href=");
    for (const char quote : {'\'', '"'}) {
        replace_all(body, fmt::format(" id={}", quote), fmt::format(" id={}{}", quote, prefix));
        replace_all(body, fmt::format("href={}#", quote), fmt::format("href={}#{}", quote, prefix));
    }
    replace_all(body, "url(#", "url(#" + prefix);
    remove_unused_definitions(body, body, prefix);
    body = with_scheme_colours(body);
    return fmt::format("<svg class=\"plot\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", plot.width,
                       plot.height, escape_markup(plot.title + ". " + plot.caption)) +
           body;
}

void write_plot(const std::string& folder, const Plot& plot) {
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) throw usage_error("the folder {} for the plots cannot be created: {}", folder, problem.message());
    const std::string path = folder + "/" + plot.name;
    const FileLegend legend = file_legend(plot);
    const std::string before = terminal(plot, legend.whole, legend.height, " background 'white'") + legend.script;
    write_file(path + ".dat", data_text(plot));
    write_file(path + ".gp", fmt::format("# {}: gnuplot {}.gp\n{}set output '{}.svg'\ndata = '{}.dat'\n{}",
                                         clean_text(plot.title), plot.name, before, plot.name, plot.name, plot.script));
    write_file(path + ".svg", run_gnuplot(fmt::format("{}$rows << END_OF_ROWS\n{}END_OF_ROWS\ndata = '$rows'\n{}",
                                                      before, data_text(plot), plot.script),
                                          plot.name)
                                  .svg);
}

}  // namespace lockstep::analysis

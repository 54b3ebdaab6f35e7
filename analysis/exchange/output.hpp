// Where an export goes: piece by piece to stdout, or to a file that bears its name only when it is whole. What a link
// leads to is replaced, not the link; pipes and devices, which cannot be whole, are written as they are.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace lockstep::analysis {

class Output {
  public:
    explicit Output(const std::string& path);  // "": stdout
    ~Output();                                 // what was not finished is removed
    Output(const Output&) = delete;
    Output& operator=(const Output&) = delete;
    void write(std::string_view text);
    void finish();  // must be called when all is written

  private:
    std::string path_, unfinished_;
    std::FILE* file_;
};

// A folder of files that bears its name only when all of them are written. Nothing is replaced: a folder or file of
// that name is a usage error.
class OutputFolder {
  public:
    explicit OutputFolder(const std::string& path);
    ~OutputFolder();  // what was not finished is removed
    OutputFolder(const OutputFolder&) = delete;
    OutputFolder& operator=(const OutputFolder&) = delete;
    const std::string& path() const { return path_; }
    const std::string& unfinished() const { return unfinished_; }  // where to write; an empty folder at first
    void finish();                                                 // must be called when all is written

  private:
    std::string path_, unfinished_;
    bool finished_ = false;
};

}  // namespace lockstep::analysis

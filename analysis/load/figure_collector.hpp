// Collects the figures of a run row by row.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/load/figures.hpp"
#include "analysis/load/row_source.hpp"

namespace lockstep::analysis {

// Adds up the rows of one span. Ranks are compared within a launch.
class SpanSums {
  public:
    void open(std::int64_t number, std::size_t ranks);
    void add(const trace::StepRow& row, const std::vector<RankSpan>& of_step, const PhaseSums& mean);
    void end_launch();
    const std::vector<RankSpan>& of_launch() const { return of_launch_; }
    std::int64_t number() const { return figures_.number; }
    SpanFigures close(bool keep_ranks);

  private:
    SpanFigures figures_;
    std::vector<RankSpan> of_launch_;
};

class FigureCollector {
  public:
    FigureCollector(const trace::Run& run, const FigureOptions& options);
    void begin_part(const trace::RunPart& part);
    void add(const RowSample& sample, const RowSource& source);
    void end_part(const RowSource& source);
    RunFigures take();

  private:
    void place_ranks();
    void find_kinds(const RowSource& source);
    void add_to_rank(std::size_t r, const RankSpan& span, const RankSample& sample);
    void add_step(const trace::StepRow& row, const std::vector<RankSpan>& of_step);
    void close_epoch();
    void close_launch();

    const trace::Run& run_;
    FigureOptions options_;
    RunFigures figures_;
    std::vector<std::vector<double>> latencies_;
    std::map<std::string, std::vector<double>> kinds_;  // seconds of each rank
    std::vector<std::vector<double>*> kinds_of_part_;   // those of the part, in the order of its samples
    std::vector<RankSpan> of_step_;
    SpanSums launch_, epoch_;
    bool epoch_open_ = false;
};

}  // namespace lockstep::analysis

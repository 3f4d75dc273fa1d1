#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/plan/plan.hpp>

/// A plan as a picture: a Chrome trace for Perfetto or chrome://tracing, or an SVG drawing. Needs fmt.

namespace dynapipe {

namespace detail {

/// Nanoseconds as the trace format's microseconds, exactly.
[[nodiscard]] inline std::string microseconds(nanoseconds time) {
  return fmt::format("{}.{:03}", time.value() / 1000, time.value() % 1000);
}

[[nodiscard]] constexpr bool transfers(opcode op) { return op == opcode::send || op == opcode::recv; }

[[nodiscard]] constexpr char letter_of(opcode op) {
  switch (op) {
    case opcode::forward: return 'F';
    case opcode::backward_input: return 'I';
    case opcode::backward_weight: return 'W';
    default: return 'B';
  }
}

/// Writes the events of one trace.
class trace_writer {
 public:
  explicit trace_writer(const plan& p) : plan_{p} {}

  std::string run() {
    out_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    for (std::size_t r = 0; r < plan_.replicas.size(); ++r) {
      event(R"("ph":"M","name":"process_name","pid":{},"args":{{"name":"replica {}"}})", r, r);
      tracks_.clear();
      for (std::size_t d = 0; d < plan_.replicas[r].devices.size(); ++d)
        device(r, d);
    }
    out_ += "\n]}\n";
    return std::move(out_);
  }

 private:
  template <class... Arguments>
  void event(fmt::format_string<Arguments...> form, Arguments&&... arguments) {
    out_ += first_ ? "\n{" : ",\n{";
    first_ = false;
    fmt::format_to(std::back_inserter(out_), form, std::forward<Arguments>(arguments)...);
    out_ += '}';
  }

  /// The track called `name` of a replica; names it when it first appears. Events of one track never overlap in part,
  /// which trace viewers cannot show: transfers have a track for each peer and direction.
  std::size_t track(std::size_t r, std::string name) {
    for (std::size_t i = 0; i < tracks_.size(); ++i)
      if (tracks_[i] == name) return i;
    event(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}})", r, tracks_.size(), name);
    event(R"("ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}})", r, tracks_.size(),
          tracks_.size());
    tracks_.push_back(std::move(name));
    return tracks_.size() - 1;
  }

  void device(std::size_t r, std::size_t d) {
    const std::size_t compute = track(r, fmt::format("device {} compute", d));
    for (const instruction& i : plan_.replicas[r].devices[d].instructions) {
      const std::string from = microseconds(i.start);
      const std::string lasts = microseconds(i.end - i.start);
      if (computes(i.op)) {
        const planned_micro_batch& mb = plan_.replicas[r].micro_batches[index(i.mb)];
        event(
            R"("ph":"X","name":"{}{} s{}","cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{"rows":{},"input":{},"target":{}}})",
            letter_of(i.op), index(i.mb), index(i.stage), to_string(i.op), r, compute, from, lasts, mb.rows,
            mb.input_length, mb.target_length);
      } else if (transfers(i.op)) {
        const bool sends = i.op == opcode::send;
        const std::size_t lane =
            track(r, fmt::format("device {} {} {}", d, sends ? "send to" : "receive from", index(i.peer)));
        event(R"("ph":"X","name":"{} m{}","cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{"bytes":{}}})",
              to_string(i.tensor), index(i.mb), to_string(i.op), r, lane, from, lasts, i.size.value());
        // Both ends of a transfer name it after its lower stage.
        const bool low = (i.tensor == tensor_kind::activation) == sends;
        const std::size_t border = index(i.stage) - (low ? 0 : 1);
        event(R"("ph":"{}","bp":"e","name":"transfer","cat":"transfer","id":"{}.{}.{}.{}","pid":{},"tid":{},"ts":{})",
              sends ? 's' : 'f', r, to_string(i.tensor), index(i.mb), border, r, lane,
              sends ? from : microseconds(i.end));
      }
    }
  }

  const plan& plan_;
  std::string out_;
  std::vector<std::string> tracks_;  ///< of the replica, by number
  bool first_ = true;
};

}  // namespace detail

/// `p` in the Chrome trace event format: a process for each replica, a track for each device's computations
/// and one for each of its peers and directions, arrows from sends to their receives. O(instructions).
[[nodiscard]] inline std::string chrome_trace(const plan& p) { return detail::trace_writer{p}.run(); }

/// The timeline of `p` as an SVG drawing: a row for each device of each replica; forwards blue, backwards green, the
/// shade by micro-batch, with a tooltip each; a dashed line at the lower bound. O(instructions).
[[nodiscard]] inline std::string timeline_svg(const plan& p) {
  constexpr int left = 110, width = 1200, row = 26, gap = 6, top = 40;
  std::size_t rows = 0;
  for (const replica_plan& replica : p.replicas)
    rows += replica.devices.size();
  const int height = top + static_cast<int>(rows) * (row + gap) + static_cast<int>(p.replicas.size()) * 12 + 40;
  const double scale = width / static_cast<double>(std::max<std::int64_t>(1, p.predicted.value()));
  const auto x_of = [&](nanoseconds t) { return left + scale * static_cast<double>(t.value()); };
  const auto in_ms = [](nanoseconds t) { return fmt::format("{:.3f}", static_cast<double>(t.value()) / 1e6); };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"20\">{3} ms predicted, lower bound {4} ms; forward blue, backward green</text>\n",
      left + width + 60, height, left, in_ms(p.predicted), in_ms(p.lower_bound));
  auto at = std::back_inserter(out);
  int y = top;
  for (std::size_t r = 0; r < p.replicas.size(); ++r, y += 12)
    for (std::size_t d = 0; d < p.replicas[r].devices.size(); ++d, y += row + gap) {
      fmt::format_to(at, "<text x=\"8\" y=\"{}\">replica {} dev {}</text>\n", y + row - 8, r, d);
      fmt::format_to(at, "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#eee\"/>\n", left, y, width, row);
      for (const instruction& i : p.replicas[r].devices[d].instructions) {
        if (!computes(i.op)) continue;
        const planned_micro_batch& mb = p.replicas[r].micro_batches[index(i.mb)];
        const int hue = i.op == opcode::forward ? 212 : i.op == opcode::backward_weight ? 40 : 140;
        fmt::format_to(
            at,
            "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"hsl({},60%,{}%)\" "
            "stroke=\"white\" stroke-width=\"0.4\"><title>{}{} stage {}: {} x {}{}, {} to {} ms</title></rect>\n",
            x_of(i.start), y, scale * static_cast<double>((i.end - i.start).value()), row, hue,
            38 + 7 * (index(i.mb) % 5), detail::letter_of(i.op), index(i.mb), index(i.stage), mb.rows, mb.input_length,
            mb.target_length > 0 ? fmt::format(" + {}", mb.target_length) : "", in_ms(i.start), in_ms(i.end));
      }
    }
  fmt::format_to(
      at, "<line x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#c00\" stroke-dasharray=\"4 3\"/>\n",
      x_of(p.lower_bound), top - 8, y);
  for (int tick = 0; tick <= 4; ++tick)
    fmt::format_to(at, "<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{:.1f} ms</text>\n",
                   left + width * tick / 4.0, y + 18, static_cast<double>(p.predicted.value()) * tick / 4e6);
  out += "</svg>\n";
  return out;
}

}  // namespace dynapipe

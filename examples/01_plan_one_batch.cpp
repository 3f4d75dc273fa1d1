/// Plans one global batch: lengths in, a checked plan out.
///
/// Shows the one call that most users need. Does not read files (see the `dynapipe` command) and does not train.

#include <vector>

#include <fmt/format.h>

#include <dynapipe/dynapipe.hpp>
#include <dynapipe/ext/json.hpp>
#include <dynapipe/ext/report.hpp>
#include <dynapipe/plan/validate.hpp>

using namespace dynapipe;

int main() {
  const model_spec model = presets::gpt_6_7b();
  const cluster_spec cluster = presets::h200();
  const analytic_cost cost{model, cluster};
  const planner plan_batch{model, cluster, cost, {.pipeline = 4, .data = 2}};

  const std::vector<sample> batch{{812, 40}, {57, 3}, {4100, 12}, {230, 65}, {95, 5}, {1310, 8}, {340, 2}, {77, 1}};
  const plan p = plan_batch(batch);

  fmt::print("{}", timeline_text(p, replica_id{0}, 80));
  fmt::print("predicted {:.1f} ms, at most {:.1f} % from optimal\n", static_cast<double>(p.predicted.value()) / 1e6,
             100 * summarize(p).gap());
  save(p, "plan.json");
  return validate(p).empty() ? 0 : 1;
}

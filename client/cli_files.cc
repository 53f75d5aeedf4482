#include "client/cli_files.h"

#include "client/file_commands.h"
#include "client/flags.h"

namespace weft::client {
namespace {

constexpr char kFolderHelp[] =
    "Folder of a job's artifacts, or of its rank-*.safetensors";

void AddDataCommands(CLI::App* app, Session& session, FileArgs* args,
                     std::function<ExitCode()>* run) {
  CLI::App* data = app->add_subcommand("data", "Make and inspect datasets");
  data->require_subcommand(1);
  CLI::App* prepare =
      data->add_subcommand("prepare", "Tokenize a text into a dataset");
  prepare->add_option("--input", args->input, "Text file; - reads from stdin")
      ->required();
  prepare
      ->add_option("--output", args->prefix,
                   "Prefix of the .bin and .idx files")
      ->required();
  prepare->add_option("--tokenizer", args->tokenizer, "Kind of tokens")
      ->check(OneOf({"byte"}))
      ->capture_default_str();
  prepare->callback([=, &session] {
    *run = [=, &session] {
      return DataPrepare(session, args->input, args->prefix);
    };
  });

  CLI::App* info = data->add_subcommand("info", "Show what a dataset holds");
  info->add_option("prefix", args->prefix, "Prefix of the .bin and .idx files")
      ->required();
  info->callback([=, &session] {
    *run = [=, &session] { return DataInfo(session, args->prefix); };
  });
}

void AddParamsCommands(CLI::App* app, Session& session, FileArgs* args,
                       std::function<ExitCode()>* run) {
  CLI::App* params =
      app->add_subcommand("params", "Work with final parameters");
  params->require_subcommand(1);
  CLI::App* diff = params->add_subcommand(
      "diff", "Compare the final parameters of two jobs to the bit");
  diff->add_option("a", args->folder_a, kFolderHelp)->required();
  diff->add_option("b", args->folder_b, kFolderHelp)->required();
  // Numbers of opposite signs differ by at most twice the larger one.
  AddNumber(diff, "--tolerance", &args->tolerance, {0, 2},
            "Largest relative error that passes; 0 compares bits");
  diff->callback([=, &session] {
    *run = [=, &session] {
      return DiffParams(session, args->folder_a, args->folder_b,
                        args->tolerance);
    };
  });

  CLI::App* exported = params->add_subcommand(
      "export", "Write them as a checkpoint of Hugging Face");
  exported->add_option("from", args->folder_a, kFolderHelp)->required();
  exported->add_option("to", args->folder_b, "Folder of the checkpoint")
      ->required();
  exported
      ->add_option("--config", args->config,
                   "Folder with the model's config.json, which is copied")
      ->required();
  exported->callback([=, &session] {
    *run = [=, &session] {
      return ExportParams(session, args->folder_a, args->config,
                          args->folder_b);
    };
  });
}

}  // namespace

void AddFileCommands(CLI::App* app, Session& session, FileArgs* args,
                     std::function<ExitCode()>* run) {
  AddDataCommands(app, session, args, run);
  AddParamsCommands(app, session, args, run);
}

}  // namespace weft::client
